// SPDX-License-Identifier: Apache-2.0
//! Segments of CPUs: starting, booking and ending them.
//!
//! Invariant: time is booked exactly when a segment changes, so that no nanosecond is booked twice or not at all.

use super::state::{Segment, State, Then};
use super::world::World;
use crate::timers::NEVER;

impl World {
    /// Books what `cpu` did since its time was last booked, to the CPU and to its task.
    pub(crate) fn charge(&mut self, cpu: usize) {
        let now = self.now;
        let one = &mut self.cpus[cpu];
        let passed = now - one.since;
        if passed == 0 {
            return;
        }
        one.since = now;
        one.ledger[one.segment.account() as usize] += passed;
        let Some(task) = one.current else { return };
        let entity = &mut self.entities[task as usize];
        entity.vruntime += passed.cast_signed();
        one.queue.idle_vruntime = entity.vruntime;
        if matches!(one.segment, Segment::Spin | Segment::Claim) {
            self.tasks[task as usize].ledger.spinning_ns += passed;
        }
    }

    /// Starts a segment of `ns` on `cpu`; [`NEVER`] for one that only others end.
    pub(crate) fn begin(&mut self, cpu: usize, segment: Segment, ns: u64) {
        self.charge(cpu);
        let end = if ns == NEVER { NEVER } else { self.now + ns };
        let one = &mut self.cpus[cpu];
        one.segment = segment;
        one.end = end;
        self.arm(cpu);
    }

    /// Sets the timer of `cpu`: the end of its segment, or its tick if somebody waits there.
    pub(crate) fn arm(&mut self, cpu: usize) {
        let one = &mut self.cpus[cpu];
        if one.queue.waiting.is_empty() || one.current.is_none() {
            one.tick_at = NEVER;
        } else if one.tick_at == NEVER || one.tick_at <= self.now {
            one.tick_at = (self.now / self.params.tick_ns + 1) * self.params.tick_ns;
        }
        self.timers.set(cpu, one.end.min(one.tick_at));
    }

    /// The timer of `cpu` has come.
    pub(crate) fn cpu_event(&mut self, cpu: usize) {
        let tick = self.cpus[cpu].tick_at == self.now;
        if self.cpus[cpu].end == self.now {
            self.segment_ends(cpu);
        }
        if tick {
            self.tick(cpu);
        }
    }

    fn segment_ends(&mut self, cpu: usize) {
        self.charge(cpu);
        let segment = self.cpus[cpu].segment;
        if let Segment::Balance = segment {
            return self.balance_ends(cpu);
        }
        let Some(task) = self.cpus[cpu].current else { return };
        let task = task as usize;
        match segment {
            Segment::Idle | Segment::Balance => {}
            Segment::Switch => self.enter_guest(cpu),
            Segment::Work => self.work_ends(cpu, task),
            Segment::Claim => self.claim_ends(cpu, task),
            Segment::Handler => self.handler_ends(cpu, task),
            Segment::Spin => self.spin_ends(cpu, task),
            Segment::Exit(Then::Return) => self.enter_guest(cpu),
            Segment::Exit(Then::OnSpin) => self.on_spin(cpu, task),
            Segment::Exit(Then::Decide) => self.decide(cpu, task),
            Segment::Exit(Then::Halt) => self.halt_now(cpu, task),
        }
    }

    /// Ends the guest's part of a segment early and remembers what is left of it. Books the time.
    pub(crate) fn leave_guest(&mut self, cpu: usize) {
        self.charge(cpu);
        let one = &self.cpus[cpu];
        let (Some(task), segment, end) = (one.current, one.segment, one.end) else { return };
        let task = &mut self.tasks[task as usize];
        match segment {
            Segment::Work => {
                let left = end - self.now;
                task.work_left = if task.speed == 1024 { left } else { (left * 1024).div_ceil(task.speed) };
            }
            Segment::Spin => task.report_left = task.report_left.saturating_sub(self.now - task.spin_from),
            _ => {}
        }
    }

    /// Moves a task from one state to another and books the time it was in the old one.
    pub(crate) fn set_state(&mut self, task: usize, state: State) {
        let one = &mut self.tasks[task];
        let passed = self.now - one.state_since;
        match one.state {
            State::Running => one.ledger.running_ns += passed,
            State::Queued => one.ledger.waiting_ns += passed,
            State::Halted => one.ledger.halted_ns += passed,
            State::Parked => one.ledger.parked_ns += passed,
        }
        one.state = state;
        one.state_since = self.now;
        self.touch(task);
    }
}
