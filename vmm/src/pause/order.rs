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
    /// A yield of its own has let another thread run a moment ago: others want its CPU.
    pub(super) crowded: bool,
}

/// What the reporting thread is to do, and until when it need not report again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) deed: Deed,
    pub(super) quiet_until: Nanos,
    /// How many times the usual spins it may spin before it reports again.
    pub(super) patience: u32,
    /// Acting was found not to pay: it spins on.
    pub(super) spins_on: bool,
    /// Whom to rouse once the lock is let go.
    pub(super) rouse: Option<VcpuIndex>,
    /// Nobody else wants the CPU.
    pub(super) alone: bool,
    /// The policy decided it, and is told what came of it.
    pub(super) decided: bool,
}

/// The most of [`Order::patience`]. Bounds how late a vCPU is heard that has to be helped again: with the spins that are
/// recommended where each vCPU can have a CPU, 2 ms.
const MOST_PATIENCE: u32 = 16;

/// The next [`Order::patience`] of a source that was told to spin on, for acting was found not to pay: only what is learnt
/// from its reports is lost, and twice as few are enough.
pub(super) fn longer(before: u32) -> u32 {
    before.saturating_mul(2).min(MOST_PATIENCE)
}

/// How many times the usual spins a source may spin that need not report for `quiet_ns`, where `base_ns` is the shortest such
/// time: each useless report doubles it, as it does the back-off window.
pub(super) fn patience(quiet_ns: u64, base_ns: u64) -> u32 {
    u32::try_from(quiet_ns / base_ns.max(1)).unwrap_or(MOST_PATIENCE).clamp(1, MOST_PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_back_off_window_within_its_bounds() {
        let of = |quiet_ns| patience(quiet_ns, 50_000);
        assert_eq!([of(0), of(50_000), of(100_000), of(400_000), of(6_400_000)], [1, 1, 2, 8, 16]);
        assert_eq!(patience(u64::MAX, 0), 16);
        assert_eq!([longer(1), longer(8), longer(16)], [2, 16, 16]);
    }
}
