// SPDX-License-Identifier: Apache-2.0
//! vCPUs as the API tells of them, looked at while they run.
//!
//! Who looks needs a CPU for that, and a vCPU that has it otherwise waits meanwhile. It is not told as waiting for that reason:
//! of the vCPUs that wait on the CPU of who looks, the one that was there last runs.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use api::wire::{Ledger, PauseCounters, Vcpu, VcpuState};
use topology::id::VcpuIndex;

use super::view::View;
use crate::host::affinity;
use crate::ledger::thread_times::{Activity, Doing};
use crate::pause::seat::Seat;
use crate::pause::yielding::current_cpu;
use crate::vcpu::control::State;
use crate::vcpu::counters::ExitKind;
use crate::vcpu::watch::{Spent, VcpuWatch};

impl View {
    /// All vCPUs in the order of the index.
    pub(super) fn vcpus(&self) -> Vec<Vcpu> {
        let looks = (0..).map(VcpuIndex).take(self.vcpus.len()).filter_map(|index| self.look(index));
        let (mut vcpus, displaced): (Vec<Vcpu>, Vec<Option<u64>>) =
            looks.map(|look| (look.vcpu, look.displaced)).unzip();
        if let Some(last) = last_there(&displaced) {
            vcpus[last].state = VcpuState::Running;
        }
        vcpus
    }

    /// One vCPU; `None` if there is no such one.
    pub(super) fn vcpu(&self, index: VcpuIndex) -> Option<Vcpu> {
        let look = self.look(index)?;
        match look.displaced {
            None => Some(look.vcpu),
            // Which of those on this CPU it is shows beside the others.
            Some(_) => self.vcpus().into_iter().nth(index.index()),
        }
    }

    fn look(&self, index: VcpuIndex) -> Option<Look> {
        let watch = self.vcpus.get(index.index())?;
        let seat = self.driver.seats().get(index.index())?;
        let Spent { wall_ns: run_loop_ns, ledger, unbooked_ns, doing } = self.spent(watch);
        let state = state(watch, seat, doing);
        let here = doing.is_some_and(|doing| Some(doing.last_cpu) == current_cpu());
        let held = seat.held.load(Ordering::Relaxed);
        let displaced = (state == VcpuState::Waiting && here && !held).then_some(unbooked_ns);
        let vcpu = Vcpu {
            index,
            apic_id: watch.apic_id(),
            tid: watch.tid(),
            state,
            affinity: watch.tid().and_then(|tid| affinity::of(tid).ok()).unwrap_or_default(),
            last_cpu: doing.map(|doing| doing.last_cpu),
            host_node: doing.and_then(|doing| self.host_node(doing.last_cpu)),
            node: self.topology.node_of(index),
            run_loop_ns,
            ledger_ns: Ledger::from(&ledger),
            exits: exits(watch),
            pause: PauseCounters::from(seat),
        };
        Some(Look { vcpu, displaced })
    }

    /// Where a vCPU's time went and what it is doing; what was told once is not taken back.
    pub(super) fn spent(&self, watch: &VcpuWatch) -> Spent {
        let spent = watch.spent();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = told.get_mut(watch.index().index()).map(|told| told.grow(&spent.ledger, spent.wall_ns));
        let ledger = ledger.unwrap_or_default();
        Spent { wall_ns: ledger.total_ns(), ledger, ..spent }
    }
}

/// A vCPU as it was looked at.
struct Look {
    vcpu: Vcpu,
    /// If it waits on the CPU of who looks: for how long, by what is not booked of it yet.
    displaced: Option<u64>,
}

/// Who of those that wait on the CPU of who looks has waited least.
fn last_there(displaced: &[Option<u64>]) -> Option<usize> {
    let waits = displaced.iter().enumerate().filter_map(|(index, waited)| waited.map(|waited| (waited, index)));
    waits.min().map(|(_, index)| index)
}

fn state(watch: &VcpuWatch, seat: &Seat, doing: Option<Doing>) -> VcpuState {
    match watch.state() {
        State::Created => VcpuState::Created,
        State::Paused => VcpuState::Paused,
        State::Finished => VcpuState::Stopped,
        State::Running if seat.parker.is_parked() => VcpuState::Parked,
        // Held off its CPU by --inject-preemption, its thread sleeps, and the vCPU wants to run.
        State::Running if seat.held.load(Ordering::Relaxed) => VcpuState::Waiting,
        State::Running => match doing.map(|doing| doing.activity) {
            Some(Activity::Sleeps) => VcpuState::Halted,
            Some(Activity::Waits) => VcpuState::Waiting,
            Some(Activity::Runs) | None => VcpuState::Running,
        },
    }
}

fn exits(watch: &VcpuWatch) -> BTreeMap<String, u64> {
    let counts = ExitKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), watch.exits().get(kind)));
    counts.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_on_the_cpu_of_who_looks_the_one_that_waited_least_was_there_last() {
        assert_eq!(last_there(&[None, Some(900), Some(20), None, Some(5000)]), Some(2));
        assert_eq!(last_there(&[None, None]), None);
    }
}
