// SPDX-License-Identifier: Apache-2.0
//! What a vCPU's thread and the driver tell each other: a report of spinning, and what is to be done about it.

use policy::time::Nanos;
use topology::id::{ApicId, HostCpu, VcpuIndex};

use super::deed::Deed;

/// A report of a vCPU that it spins, as its source saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Who is waited for, if the guest said.
    pub(super) owner: Option<ApicId>,
    /// Waits finished since the last report, if the source can tell.
    pub(super) progress: Option<u32>,
    /// The thread lost its CPU since the last report.
    pub(super) descheduled: bool,
    /// The CPU it is on.
    pub(super) cpu: Option<HostCpu>,
}

/// What the reporting thread is to do, and until when it need not report again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) deed: Deed,
    pub(super) quiet_until: Nanos,
    /// Whom to rouse once the lock is let go.
    pub(super) rouse: Option<VcpuIndex>,
    /// Nobody else wants the CPU.
    pub(super) alone: bool,
    /// The policy decided it, and is told what came of it.
    pub(super) decided: bool,
}
