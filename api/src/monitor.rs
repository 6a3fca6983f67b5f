// SPDX-License-Identifier: Apache-2.0
//! What this room knows of a machine: a trait of snapshots and one way to ask for a change.
//!
//! `vmm` implements [`Monitor`]. Its methods are called on the API's own thread, one at a time, and are cheap: they copy what
//! is known and wait for no vCPU. What takes longer is asked for with [`Monitor::ask`], which gives a [`Ticket`] at once;
//! whoever carries the change out redeems it with the [`Promise`].
//!
//! Invariant for implementers: a change that comes with a generation is carried out only if the machine's generation is that
//! one, compared and changed under one lock, so that of two changes with the same generation one wins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, VcpuIndex};

use crate::wire::{
    Configuration, Decisions, Generation, Host, Pause, PauseChange, Placement, PlacementChange, Stats, Thresholds,
    ThresholdsChange, Topology, Vcpu, Vcpus, Vm, VmState, WantedState,
};

/// A machine, or the place of one that is still to be created (`vmm --api-only`).
pub trait Monitor: Send + Sync + 'static {
    /// The machine; none before it was created. Asked for most often: no file is read for it.
    fn vm(&self) -> Option<Vm>;
    /// Its vCPUs; none before it was created.
    fn vcpus(&self) -> Option<Vcpus>;
    /// One vCPU; none if there is no machine, or no such vCPU.
    fn vcpu(&self, index: VcpuIndex) -> Option<Vcpu>;
    /// What the guest is told of its shape; none before it was created.
    fn topology(&self) -> Option<Topology>;
    /// The host.
    fn host(&self) -> Host;
    /// Where the machine is; none before it was created.
    fn placement(&self) -> Option<Placement>;
    /// The pause handling; none before it was created.
    fn pause(&self) -> Option<Pause>;
    /// From which numbers on events are told; none before it was created.
    fn thresholds(&self) -> Option<Thresholds>;
    /// Sums over these vCPUs, which [`Monitor::vcpus`] gave, and costs, without [`Stats::api`]; none before it was created.
    fn stats_of(&self, vcpus: &[Vcpu]) -> Option<Stats>;
    /// The latest `limit` decisions; none before it was created.
    fn decisions(&self, limit: usize) -> Option<Decisions>;
    /// Asks for a change; if `expected` is given, only if the machine's generation is that one.
    fn ask(&self, change: Change, expected: Option<Generation>) -> Ticket;
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Put a machine together; it is `created` then.
    Create(Configuration),
    /// Bring it to a state.
    State(WantedState),
    /// Press the power button. The guest may take its time, or ignore it.
    PowerButton,
    /// Reset the guest as its reset button would.
    Reset,
    /// Send a non-maskable interrupt to every vCPU.
    Nmi,
    /// Give a vCPU's thread other CPUs.
    Affinity {
        /// Who.
        vcpu: VcpuIndex,
        /// The CPUs; not empty.
        cpus: CpuSet<HostCpu>,
    },
    /// Change the placement.
    Placement(PlacementChange),
    /// Change the pause handling.
    Pause(PauseChange),
    /// Change from which numbers on events are told.
    Thresholds(ThresholdsChange),
}

/// Why a change was not made. Nothing of it was done then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No machine has been created.
    #[error("there is no machine; create one with PUT /api/v1/vm")]
    NoVm,
    /// There is one already.
    #[error("there is a machine already; one process runs one machine")]
    AlreadyExists,
    /// The machine's state does not allow it.
    #[error("the machine is {state}: {what} is not possible now")]
    WrongState {
        /// The state it is in.
        state: VmState,
        /// What was asked for.
        what: String,
    },
    /// It cannot be changed while this machine exists.
    #[error("{what} cannot be changed while the machine exists: {why}")]
    NotAtRunTime {
        /// What.
        what: String,
        /// Why.
        why: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// Another change was faster.
    #[error("the machine has generation {current}, not {expected}")]
    Stale {
        /// The machine's.
        current: Generation,
        /// The one that was given.
        expected: Generation,
    },
    /// No such vCPU.
    #[error("vCPU {index} does not exist; the machine has {count}")]
    NoSuchVcpu {
        /// Who was named.
        index: VcpuIndex,
        /// How many there are.
        count: u32,
    },
    /// A key that does not exist.
    #[error("`{field}` is not known")]
    UnknownField {
        /// The key.
        field: String,
        /// The known one nearest to it, if one is near.
        nearest: Option<String>,
    },
    /// A value that cannot be.
    #[error("{field}: {message}")]
    Invalid {
        /// The key of the value.
        field: String,
        /// The value and what is wrong with it.
        message: String,
        /// What to write instead.
        hint: Option<String>,
    },
    /// The host refused it.
    #[error("{what}: {cause}")]
    HostRefused {
        /// What was tried.
        what: String,
        /// The host's reason.
        cause: String,
        /// What to do.
        hint: Option<String>,
    },
    /// It was not done in time.
    #[error("{what} was not done in time; it may still be")]
    Busy {
        /// What.
        what: String,
    },
    /// The process is about to end.
    #[error("the monitor is about to end")]
    Ending,
}

impl Refusal {
    /// Refuses a change that was asked of another generation than the one that holds.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn if_stale(current: Generation, expected: Option<Generation>) -> Result<(), Self> {
        match expected {
            Some(expected) if expected != current => Err(Self::Stale { current, expected }),
            _ => Ok(()),
        }
    }
}

/// What came of a change: the generation it led to.
pub type Asked = Result<Generation, Refusal>;

/// A change that was asked for: a future that is ready when it was made or refused.
pub struct Ticket(oneshot::Receiver<Asked>);

/// The other end of a [`Ticket`]. Dropped unredeemed it says [`Refusal::Ending`].
pub struct Promise(oneshot::Sender<Asked>);

impl Ticket {
    /// A ticket and its promise.
    #[must_use]
    pub fn with_promise() -> (Self, Promise) {
        let (sender, receiver) = oneshot::channel();
        (Self(receiver), Promise(sender))
    }

    /// A change that was made or refused at once.
    #[must_use]
    pub fn ready(asked: Asked) -> Self {
        let (ticket, promise) = Self::with_promise();
        promise.redeem(asked);
        ticket
    }
}

impl Promise {
    /// Says what came of the change, from any thread. Whether the client still waits does not matter.
    pub fn redeem(self, asked: Asked) {
        // An error is a client that has gone.
        let _ = self.0.send(asked);
    }
}

impl Future for Ticket {
    type Output = Asked;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Asked> {
        Pin::new(&mut self.0).poll(context).map(|received| received.unwrap_or(Err(Refusal::Ending)))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}
