// SPDX-License-Identifier: Apache-2.0
//! vCPUs as the API tells of them, looked at while they run.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use api::wire::{Ledger, PauseCounters, Vcpu, VcpuState, Yields};
use policy::pause::YieldOutcome;
use topology::id::VcpuIndex;

use super::view::View;
use crate::host::affinity;
use crate::ledger;
use crate::ledger::thread_times::Doing;
use crate::pause::seat::Seat;
use crate::vcpu::control::State;
use crate::vcpu::counters::ExitKind;
use crate::vcpu::watch::VcpuWatch;

impl View {
    /// One vCPU; `None` if there is no such one.
    pub(super) fn vcpu(&self, index: VcpuIndex) -> Option<Vcpu> {
        let watch = self.vcpus.get(index.index())?;
        let seat = self.driver.seats().get(index.index())?;
        let (run_loop_ns, ledger, doing) = self.spent(watch);
        Some(Vcpu {
            index,
            apic_id: watch.apic_id(),
            tid: watch.tid(),
            state: state(watch, seat, doing),
            affinity: watch.tid().and_then(|tid| affinity::of(tid).ok()).unwrap_or_default(),
            last_cpu: doing.map(|doing| doing.last_cpu),
            host_node: doing.and_then(|doing| self.host_node(doing.last_cpu)),
            node: self.topology.node_of(index),
            run_loop_ns,
            ledger_ns: wire(&ledger),
            exits: exits(watch),
            pause: pause(seat),
        })
    }

    /// How long a vCPU was in the run loop, where that went, and what it is doing.
    pub(super) fn spent(&self, watch: &VcpuWatch) -> (u64, ledger::Ledger, Option<Doing>) {
        let spent = watch.spent();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = told.get_mut(watch.index().index()).map(|told| told.grow(&spent.ledger, spent.wall_ns));
        let ledger = ledger.unwrap_or_default();
        (ledger.total_ns(), ledger, spent.doing)
    }
}

fn state(watch: &VcpuWatch, seat: &Seat, doing: Option<Doing>) -> VcpuState {
    match watch.state() {
        State::Created => VcpuState::Created,
        State::Paused => VcpuState::Paused,
        State::Finished => VcpuState::Stopped,
        State::Running if seat.parker.is_parked() => VcpuState::Parked,
        State::Running if doing.is_some_and(|doing| doing.sleeps) => VcpuState::Halted,
        State::Running => VcpuState::Running,
    }
}

/// As it crosses the socket.
pub(super) const fn wire(ledger: &ledger::Ledger) -> Ledger {
    Ledger {
        guest: ledger.guest_ns,
        halted: ledger.halted_ns,
        polling: ledger.polling_ns,
        waiting: ledger.waiting_ns,
        kernel: ledger.kernel_ns,
        user: ledger.user_ns,
    }
}

fn exits(watch: &VcpuWatch) -> BTreeMap<String, u64> {
    let counts = ExitKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), watch.exits().get(kind)));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn pause(seat: &Seat) -> PauseCounters {
    let outcome = |which: YieldOutcome| seat.outcomes[which.index()].get();
    PauseCounters {
        events: seat.events.get(),
        quiet: seat.quiet.get(),
        forced: seat.forced.get(),
        pause_exits: seat.pause_exits.get(),
        sampled: seat.sampled.get(),
        spins: seat.spins.get(),
        yields: Yields {
            attempted: YieldOutcome::ALL.iter().map(|which| outcome(*which)).sum(),
            boosted: outcome(YieldOutcome::Boosted),
            not_boosted: outcome(YieldOutcome::NotBoosted),
            nobody_waiting: outcome(YieldOutcome::NobodyWaiting),
        },
        bailed: seat.bailed().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        parks: seat.parks.get(),
        parked_ns: seat.parked_ns.get(),
        yielded_ns: seat.yielded_ns.get(),
        donated_ns: seat.donated_ns.load(Ordering::Relaxed),
        received_ns: seat.received_ns.load(Ordering::Relaxed),
    }
}
