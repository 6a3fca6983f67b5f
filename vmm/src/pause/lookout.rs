// SPDX-License-Identifier: Apache-2.0
//! When the host is looked at for a decision, and at whom: what the threads tell themselves is not asked for again.
//!
//! Called on vCPU threads, without the driver's lock. Invariant: a look is bounded, and a decision without one is a decision
//! all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::effective::Grant;
use super::order::Report;
use super::runqueue::RunqueueView;
use super::seat::Seat;
use crate::host::runqueue::ThreadSeen;

/// What costs milliseconds of CPU once (the program of the exact view, the trial of `sched_yield`) is had after so many
/// reports: by then these have cost the guest as much (60 us each, design 3.2). A guest that hardly spins, or whose spinning
/// the kernel sees to, never pays for it; on an emulated host the exact view took 0.66 s of a run of 3 s.
const WORTH_REPORTS: u32 = 256;
/// A vCPU that was silent for this long is looked at before it is judged.
const SILENT_NS: u64 = 1_000_000;
/// Silent vCPUs looked at for one event, at most.
const MOST_LOOKS: usize = 4;
/// The same for the exact view, which sees them all with one system call.
const MOST_EXACT_LOOKS: usize = 64;

/// How one machine looks at its host.
pub(super) struct Lookout {
    runqueues: Arc<dyn RunqueueView>,
    /// Mirrors [`Rules::look`](super::rules::Rules::look).
    wanted: AtomicBool,
    /// Reports that a decision was made about, up to [`WORTH_REPORTS`]. A lost count of two at once does no harm.
    reports: AtomicU32,
}

impl Lookout {
    pub(super) fn new(runqueues: Arc<dyn RunqueueView>) -> Self {
        Self { runqueues, wanted: AtomicBool::new(false), reports: AtomicU32::new(0) }
    }

    /// Whether decisions depend on what is seen, from now on.
    pub(super) fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// How runqueues are seen by now.
    pub(super) fn grants(&self) -> Vec<Grant> {
        self.runqueues.grants()
    }

    /// Whether the thread of the vCPU at `position` is known to sleep.
    pub(super) fn sleeps(&self, position: usize) -> bool {
        let mut seen = [ThreadSeen::default()];
        self.runqueues.look(&[position], &mut seen);
        seen[0].runnable == Some(false)
    }

    /// Counts a report. True if what is found out once, at the cost of milliseconds, is worth its price by now.
    pub(super) fn is_worth_more(&self) -> bool {
        let reports = self.reports.load(Ordering::Relaxed);
        if reports < WORTH_REPORTS {
            self.reports.store(reports + 1, Ordering::Relaxed);
        }
        reports >= WORTH_REPORTS
    }

    /// Looks at the threads whose state is not known from what they reported. Without the lock.
    pub(super) fn look(
        &self,
        seats: &[Seat],
        source: VcpuIndex,
        owner: Option<VcpuIndex>,
        report: &Report,
        now: Nanos,
    ) -> Vec<(VcpuIndex, ThreadSeen)> {
        if !self.wanted.load(Ordering::Relaxed) {
            return Vec::new();
        }
        if self.reports.load(Ordering::Relaxed) >= WORTH_REPORTS {
            self.runqueues.wanted();
        }
        let silent = |vcpu: VcpuIndex| now.since(seats[vcpu.index()].heard_at()) > SILENT_NS;
        let is_known = |owner: &VcpuIndex| {
            let seat = &seats[owner.index()];
            // It is woken whatever the runqueues look like (docs/pause-loops.md, rule 1), and most events of a guest whose
            // spinners park are of this kind.
            seat.parker.is_parked()
                // Others are known to want the source's CPU, and the owner was awake a moment ago: what a look would show
                // (5 us, one of twenty a hand-over takes) changes nothing about what is done.
                || (report.crowded || seat.was_on(report.cpu)) && !silent(*owner)
        };
        if owner.filter(|owner| *owner != source).as_ref().is_some_and(is_known) {
            return Vec::new();
        }
        // From the source on, so that in a large VM every vCPU is looked at by somebody.
        let vcpus = (0..).map(VcpuIndex).take(seats.len());
        let others = vcpus.clone().skip(source.index() + 1).chain(vcpus.take(source.index()));
        let which: Vec<VcpuIndex> = match owner {
            _ if self.runqueues.is_exact() => std::iter::once(source)
                .chain(owner.filter(|owner| *owner != source))
                .chain(others.filter(|_| owner.is_none()).take(MOST_EXACT_LOOKS))
                .collect(),
            Some(owner) => (owner != source && silent(owner)).then_some(owner).into_iter().collect(),
            None => others.filter(|vcpu| silent(*vcpu)).take(MOST_LOOKS).collect(),
        };
        if which.is_empty() {
            return Vec::new();
        }
        let positions: Vec<usize> = which.iter().map(|vcpu| vcpu.index()).collect();
        let mut seen = vec![ThreadSeen::default(); which.len()];
        self.runqueues.look(&positions, &mut seen);
        for (vcpu, seen) in which.iter().zip(&seen) {
            seats[vcpu.index()].heard(seen.cpu, now);
        }
        which.into_iter().zip(seen).collect()
    }
}
