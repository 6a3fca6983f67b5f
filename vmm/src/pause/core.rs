// SPDX-License-Identifier: Apache-2.0
//! What the driver's lock guards: the view of the VM's vCPUs, the policy's memory, the book, the log.
//!
//! No system calls but those of the log. Invariant: view and book agree on who wants a CPU, and what was seen of a vCPU
//! that is stopped or parked changes neither.

use policy::pause::{
    Decision, HostView, OutcomeEvent, PauseConfig, PauseEvent, PauseState, VcpuState, VcpuView, decide,
};
use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::book::Book;
use super::log::DecisionLog;
use super::rules::Rules;
use crate::host::runqueue::ThreadSeen;

/// What the mutex guards.
pub(super) struct Core {
    pub(super) rules: Rules,
    pub(super) view: HostView,
    pub(super) state: PauseState,
    pub(super) book: Book,
    pub(super) log: Option<DecisionLog>,
}

impl Core {
    pub(super) fn decide(&mut self, event: &PauseEvent, config: &PauseConfig, now: Nanos) -> Decision {
        let decision = decide(event, &self.view, &mut self.state, config, now);
        if let Some(log) = &mut self.log {
            log.decided_by(config, now);
            log.decision(event, &self.view, &decision, now);
        }
        decision
    }

    /// Takes in how an action that the policy chose has ended.
    pub(super) fn outcome(&mut self, event: &OutcomeEvent, config: &PauseConfig, now: Nanos) {
        self.state.outcome(event, config, now);
        if let Some(log) = &mut self.log {
            log.decided_by(config, now);
            log.outcome(event, now);
        }
    }

    /// Takes in what a look at a thread showed.
    pub(super) fn take_look(&mut self, vcpu: VcpuIndex, seen: ThreadSeen) {
        let Some(before) = self.view.get(vcpu).copied() else { return };
        if matches!(before.state, VcpuState::Stopped | VcpuState::Parked) {
            return;
        }
        let state = match (seen.on_cpu, seen.runnable) {
            (Some(true), _) => VcpuState::Running,
            (_, Some(false)) => VcpuState::Halted,
            (Some(false), Some(true)) => VcpuState::Queued,
            _ => VcpuState::Unknown,
        };
        let cpu = seen.cpu.or(before.cpu);
        self.book.put(vcpu, cpu.filter(|_| state != VcpuState::Halted));
        self.view.set(vcpu, VcpuView { state, cpu, ..before });
    }

    /// Puts what only an exact view sees above the book's numbers.
    pub(super) fn take_exact(&mut self, vcpu: VcpuIndex, seen: ThreadSeen) {
        self.view.update(vcpu, |view| {
            view.runqueue = seen.runqueue.or(view.runqueue);
            if seen.on_cpu == Some(true) && view.state == VcpuState::Unknown {
                view.state = VcpuState::Running;
            }
        });
    }

    /// Brings the book's numbers of a vCPU into the view.
    pub(super) fn refresh(&mut self, vcpu: VcpuIndex, spinning: Option<bool>) {
        let (runqueue, cpu) = (self.book.runqueue(vcpu), self.book.cpu(vcpu));
        self.view.update(vcpu, |view| {
            // Running was true when it reported; whether it still is nobody has said.
            if view.state == VcpuState::Running {
                view.state = VcpuState::Unknown;
            }
            view.runqueue = runqueue;
            view.cpu = cpu.or(view.cpu);
            view.spinning = spinning.unwrap_or(view.spinning);
        });
    }

    pub(super) fn unpark(&mut self, vcpu: VcpuIndex) {
        let cpu = self.view.get(vcpu).and_then(|view| view.cpu);
        if self.view.get(vcpu).is_some_and(|view| view.state == VcpuState::Parked) {
            self.book.put(vcpu, cpu);
            self.view.update(vcpu, |view| view.state = VcpuState::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use topology::id::HostCpu;

    use super::*;
    use crate::config::PausePlan;

    #[test]
    fn a_vcpu_seen_on_a_cpu_runs_there_and_one_that_may_be_is_unknown() {
        let (view, state, book) = (HostView::new(2, Vec::new(), 2), PauseState::new(2), Book::new(2));
        let rules = Rules::new(&PausePlan::default(), PauseConfig::default(), 2);
        let mut core = Core { rules, view, state, book, log: None };
        let vcpu = VcpuIndex(1);
        core.view.set(vcpu, VcpuView { state: VcpuState::Unknown, ..VcpuView::default() });
        let exact = ThreadSeen { runqueue: Some(3), on_cpu: Some(true), runnable: Some(true), cpu: Some(HostCpu(0)) };
        let by_proc = ThreadSeen { runqueue: None, on_cpu: None, ..exact };
        for (seen, expected) in [(exact, (VcpuState::Running, Some(3))), (by_proc, (VcpuState::Unknown, Some(1)))] {
            core.take_look(vcpu, seen);
            core.refresh(vcpu, None);
            core.take_exact(vcpu, seen);
            let view = core.view.get(vcpu).unwrap();
            assert_eq!((view.state, view.runqueue), expected, "{seen:?}");
        }
    }
}
