// SPDX-License-Identifier: Apache-2.0
//! Placement of a running machine, to be asked and to be changed.
//!
//! The handle sends requests to the thread that decides ([`super::live`]), which answers between two looks; whoever asks
//! waits for milliseconds. Invariant: a change that is refused changes nothing.

use std::io;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use policy::placement::{Decision, Plan, Rules};
use topology::cpu_set::CpuSet;
use topology::host::HostError;
use topology::id::{HostCpu, VcpuIndex};

use super::account::Account;
use super::error::StartError;
use super::memory::NodeMemory;
use crate::config::PlacementConfig;

/// A wish that cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The decision, as at start.
    #[error(transparent)]
    Decision(#[from] StartError),
    /// The host.
    #[error("the host's topology cannot be used: {0}; mode none needs none")]
    Host(#[from] HostError),
    /// There is no such vCPU.
    #[error("vCPU {vcpu} does not exist; there are {vcpus}, from 0")]
    NoSuchVcpu {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// How many there are.
        vcpus: usize,
    },
    /// CPUs that the process may not use.
    #[error("vCPU {vcpu} cannot be held on the CPUs {cpus}: usable are {usable}")]
    NotUsable {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The CPUs that are not usable, or none at all.
        cpus: CpuSet<HostCpu>,
        /// The CPUs that are.
        usable: CpuSet<HostCpu>,
    },
    /// The kernel refused.
    #[error("vCPU {vcpu} cannot be put on the CPUs {cpus}: {source}; has the cpuset changed?")]
    Refused {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The CPUs.
        cpus: CpuSet<HostCpu>,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The machine is at its end.
    #[error("the machine is at its end, nothing is placed any more")]
    Ended,
}

/// There is nobody who would answer.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// The host.
    #[error("placement cannot be changed while the guest runs, the host's topology cannot be used: {0}")]
    Host(#[from] HostError),
    /// No thread.
    #[error(
        "placement cannot be changed while the guest runs: no thread can be started; raise the limit on processes (ulimit -u)"
    )]
    NoThread,
}

/// What is to change; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementChange {
    /// Mode, pinned CPUs and whether they are kept for this machine: decided anew, as at start.
    pub placement: Option<PlacementConfig>,
    /// Rules that are switched on.
    pub rules: Option<Rules>,
}

/// One vCPU's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuPlace {
    /// Who.
    pub vcpu: VcpuIndex,
    /// CPUs that the thread may use, as applied.
    pub cpus: CpuSet<HostCpu>,
    /// The last decision about it; `None` where the kernel decides.
    pub decision: Option<Decision>,
    /// Whether somebody named its CPUs; it is then left alone.
    pub held: bool,
}

/// Placement of a machine as it is now.
#[derive(Clone, Debug)]
pub struct PlacementState {
    /// What is asked for.
    pub config: PlacementConfig,
    /// Rules that are switched on.
    pub rules: Rules,
    /// What was decided at start, or at the last change of mode; without places where the kernel decides.
    pub plan: Plan,
    /// vCPUs by index.
    pub vcpus: Vec<VcpuPlace>,
    /// CPUs of the other threads; `None` where they may go anywhere.
    pub others: Option<CpuSet<HostCpu>>,
    /// CPUs that are claimed; `None` without a registry, and in mode `none`.
    pub claimed: Option<CpuSet<HostCpu>>,
    /// How the guest nodes' memory is tied.
    pub memory: Vec<NodeMemory>,
    /// What was done while the guest ran.
    pub account: Account,
}

/// An answer to a change.
pub(super) type Answer = Result<PlacementState, ControlError>;

/// What the deciding thread is told.
pub(super) enum Message {
    /// To end.
    End,
    /// To say how things are.
    Tell(SyncSender<PlacementState>),
    /// To change mode or rules.
    Change(PlacementChange, SyncSender<Answer>),
    /// To hold a vCPU on these CPUs, or to let it go again.
    Hold(VcpuIndex, Option<CpuSet<HostCpu>>, SyncSender<Answer>),
}

/// Placement of a running machine. Cloning gives another handle to the same.
#[derive(Clone, Debug)]
pub struct PlacementHandle(pub(super) Sender<Message>);

impl PlacementHandle {
    /// How things are.
    ///
    /// # Errors
    /// [`ControlError::Ended`].
    pub fn state(&self) -> Result<PlacementState, ControlError> {
        let (answer, state) = sync_channel(1);
        self.0.send(Message::Tell(answer)).map_err(|_| ControlError::Ended)?;
        state.recv().map_err(|_| ControlError::Ended)
    }

    /// Changes mode, pinned CPUs, rules; answers with what came of it. A new mode lets held vCPUs go.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed then.
    pub fn change(&self, change: PlacementChange) -> Result<PlacementState, ControlError> {
        self.ask(|answer| Message::Change(change, answer))
    }

    /// Holds one vCPU on these CPUs, whatever the rules say, until it is let go with `None`, or none of them is usable any
    /// more.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed then.
    pub fn hold(&self, vcpu: VcpuIndex, cpus: Option<CpuSet<HostCpu>>) -> Result<PlacementState, ControlError> {
        self.ask(|answer| Message::Hold(vcpu, cpus, answer))
    }

    fn ask(&self, message: impl FnOnce(SyncSender<Answer>) -> Message) -> Answer {
        let (answer, answered) = sync_channel(1);
        self.0.send(message(answer)).map_err(|_| ControlError::Ended)?;
        answered.recv().unwrap_or(Err(ControlError::Ended))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_machine_at_its_end_says_so() {
        let (sender, receiver) = channel();
        let handle = PlacementHandle(sender);
        drop(receiver);
        assert!(matches!(handle.state(), Err(ControlError::Ended)));
        assert!(matches!(handle.change(PlacementChange::default()), Err(ControlError::Ended)));
        assert!(matches!(handle.hold(VcpuIndex(0), None), Err(ControlError::Ended)));
    }
}
