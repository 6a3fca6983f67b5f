// SPDX-License-Identifier: Apache-2.0
//! A vCPU as any thread may look at it, while it runs. It is neither stopped nor made to wait for that.

use std::sync::Arc;

use topology::id::{ApicId, VcpuIndex};

use super::control::State;
use super::counters::ExitCounters;
use super::shared::Shared;
use crate::kvm::stats::{Stats, StatsError};
use crate::ledger::Ledger;
use crate::ledger::thread_times::{Doing, ThreadTimes};

/// What is shown of a vCPU's thread. Outlives the thread.
#[derive(Clone, Debug)]
pub struct VcpuWatch {
    pub(super) index: VcpuIndex,
    pub(super) apic_id: ApicId,
    pub(super) shared: Arc<Shared>,
    pub(super) stats: Arc<Result<Stats, StatsError>>,
}

/// Where a vCPU's time went up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In the run loop.
    pub wall_ns: u64,
    /// Where that went. One reading may book as one thing what the next one knows to be another
    /// ([`crate::ledger::growing`]).
    pub ledger: Ledger,
    /// Time off CPU that is not explained yet ([`Measured::unbooked_ns`](crate::ledger::Measured::unbooked_ns)).
    pub unbooked_ns: u64,
    /// What the thread is doing; `None` if there is none.
    pub doing: Option<Doing>,
}

impl VcpuWatch {
    /// Which vCPU this is.
    #[must_use]
    pub const fn index(&self) -> VcpuIndex {
        self.index
    }

    /// Its APIC id.
    #[must_use]
    pub const fn apic_id(&self) -> ApicId {
        self.apic_id
    }

    /// Its thread id; `None` until the thread has run its first instruction.
    #[must_use]
    pub fn tid(&self) -> Option<i32> {
        self.shared.tid()
    }

    /// The state it last reported.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.state()
    }

    /// Its exits so far.
    #[must_use]
    pub fn exits(&self) -> &ExitCounters {
        &self.shared.exits
    }

    /// KVM's counters of it, or why there are none.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn stats(&self) -> Result<&Stats, &StatsError> {
        Result::as_ref(&self.stats)
    }

    /// Where its time went up to now. Takes some microseconds: two files of `/proc` and KVM's counters are read.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let mut doing = None;
        let measured = self.shared.meter.measured_now(|| {
            let seen = self.tid().and_then(ThreadTimes::of);
            doing = seen.map(|(_, doing)| doing);
            seen.map_or_else(ThreadTimes::default, |(times, _)| times)
        });
        let measured = Shared::with_kvm(measured, self.stats());
        let (ledger, unbooked_ns) = (Ledger::of(&measured), measured.unbooked_ns());
        Spent { wall_ns: measured.wall_ns, ledger, unbooked_ns, doing }
    }
}
