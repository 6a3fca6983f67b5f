// SPDX-License-Identifier: Apache-2.0
//! What a task does on its CPU: one step of its program after the other.
//!
//! Invariant: while steps are taken no time passes and the CPU is in no guest segment, so that whatever a step sets off
//! (a wake-up, a preemption) finds a state that is whole.

use super::state::{Segment, State, Wait};
use super::world::World;
use crate::guest::{Op, Source};
use crate::timers::NEVER;

impl World {
    /// The current task of `cpu` goes (back) into its guest. Its time is booked.
    pub(crate) fn enter_guest(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].current else { return };
        let task = task as usize;
        self.cpus[cpu].segment = Segment::Switch;
        if self.cpus[cpu].resched {
            return self.preempt(cpu);
        }
        self.conclude(task);
        let one = &mut self.tasks[task];
        one.named = false;
        if one.in_spin_loop {
            (one.in_spin_loop, one.eligible) = (false, false);
        }
        let one = &self.tasks[task];
        if !one.irqs_off && !one.interrupts.is_empty() {
            return self.begin(cpu, Segment::Handler, self.params.ipi_handle_ns);
        }
        if one.work_left > 0 {
            return self.begin_work(cpu, task);
        }
        let (wait, satisfied) = (one.wait, one.satisfied);
        match wait {
            Wait::Nothing => self.advance(cpu, task),
            _ if satisfied || self.look_again(task) => self.claim(cpu, task),
            _ if self.tasks[task].waits_halted => self.begin_halt(cpu, task),
            _ => self.begin_spin(cpu, task),
        }
    }

    fn begin_work(&mut self, cpu: usize, task: usize) {
        let speed = self.speed(cpu, task);
        let one = &mut self.tasks[task];
        one.speed = speed;
        let ns = if speed == 1024 { one.work_left } else { (one.work_left * speed).div_ceil(1024) };
        self.begin(cpu, Segment::Work, ns);
    }

    /// How much longer work takes than on a CPU alone with its memory near, in 1024ths: 1024 is as long.
    fn speed(&self, cpu: usize, task: usize) -> u64 {
        let one = &self.tasks[task];
        let mut slowdown = 1024;
        let memory = match self.vms[one.vm].vm.programs[one.program].get(one.at) {
            Some(Op::Work { memory, .. }) => *memory,
            _ => 0,
        };
        if memory > 0 {
            slowdown += memory * self.remoteness(task, self.host.nodes.of[cpu]) / 1024;
        }
        match self.busy_threads(cpu) {
            0 | 1 => slowdown,
            busy => slowdown * self.params.smt_slowdown[(busy - 2).min(2)] / 1024,
        }
    }

    /// Threads of the core of `cpu`, which is busy, that count as busy.
    fn busy_threads(&self, cpu: usize) -> usize {
        let core = self.host.cores.group(cpu);
        let busy = |&other: &usize| other == cpu || self.cpus[other].current.is_some();
        if self.params.smt_by_number {
            return core.iter().rposition(busy).map_or(1, |highest| highest + 1);
        }
        core.iter().copied().filter(busy).count()
    }

    /// A piece of work is done.
    pub(crate) fn work_ends(&mut self, cpu: usize, task: usize) {
        let one = &mut self.tasks[task];
        one.work_left = 0;
        if one.wait != Wait::Nothing {
            return self.enter_guest(cpu);
        }
        one.at += 1;
        self.cpus[cpu].segment = Segment::Switch;
        self.advance(cpu, task);
    }

    /// Takes steps until one of them takes time.
    fn advance(&mut self, cpu: usize, task: usize) {
        let mut laps = 0;
        loop {
            if self.cpus[cpu].resched {
                return self.preempt(cpu);
            }
            let one = &mut self.tasks[task];
            let program = &self.vms[one.vm].vm.programs[one.program];
            if one.at >= program.len() {
                one.at = 0;
                one.operations += 1;
                laps += 1;
                if laps > 1 {
                    // A program that takes no time at all takes one nanosecond a lap.
                    one.work_left = 1;
                    one.at = program.len();
                    return self.begin_work(cpu, task);
                }
            }
            let op = program[one.at];
            if self.step(cpu, task, op) {
                return;
            }
            self.tasks[task].at += 1;
        }
    }

    /// Takes one step. Whether it takes time; otherwise it is done.
    fn step(&mut self, cpu: usize, task: usize, op: Op) -> bool {
        match op {
            Op::Work { span, kernel, .. } => {
                let one = &mut self.tasks[task];
                (one.work_left, one.kernel) = (span.draw(&mut one.rng), kernel);
                if one.work_left == 0 {
                    return false;
                }
                self.begin_work(cpu, task);
                true
            }
            Op::Acquire { lock, halts, irqs_off } => {
                self.tasks[task].irqs_off = irqs_off;
                let got = self.acquire(task, lock);
                self.begin_wait(cpu, task, Wait::Lock(lock), halts, got)
            }
            Op::Release { lock } => {
                self.release(task, lock);
                self.tasks[task].irqs_off = false;
                if self.tasks[task].interrupts.is_empty() {
                    return false;
                }
                self.tasks[task].at += 1;
                self.enter_guest(cpu);
                true
            }
            Op::Shootdown => {
                let sent = self.shoot_down(task) as u64;
                if sent == 0 {
                    return false;
                }
                self.tasks[task].work_left = sent * self.params.ipi_send_ns;
                self.begin_wait(cpu, task, Wait::Acks, false, false)
            }
            Op::Barrier { halts } => !self.arrive(task) && self.begin_wait(cpu, task, Wait::Barrier, halts, false),
            Op::Sleep { span } => {
                let ns = span.draw(&mut self.tasks[task].rng).max(1);
                self.timers.set(self.slot(task), self.now + ns);
                self.begin_wait(cpu, task, Wait::Timer, true, false)
            }
            Op::Send { lines } => {
                self.send(task, lines);
                false
            }
            Op::Receive => {
                let message = self.tasks[task].messages.pop();
                if let Some((from, lines)) = message {
                    (self.tasks[task].line_from, self.tasks[task].lines) = (from, lines);
                }
                self.begin_wait(cpu, task, Wait::Message, true, message.is_some())
            }
        }
    }

    /// Begins a wait that is over already (`got`), or not. It takes time either way.
    fn begin_wait(&mut self, cpu: usize, task: usize, wait: Wait, halts: bool, got: bool) -> bool {
        let now = self.now;
        let one = &mut self.tasks[task];
        (one.wait, one.waits_halted, one.wait_since) = (wait, halts, now);
        one.satisfied = got;
        one.kernel = true;
        one.report_left = self.vms[one.vm].report_ns;
        if !got && !halts {
            self.trace_wait(cpu, task, true);
        }
        self.enter_guest(cpu);
        true
    }

    /// What was waited for is here.
    pub(crate) fn claim_ends(&mut self, cpu: usize, task: usize) {
        let waited = self.now - self.tasks[task].wait_since;
        let one = &mut self.tasks[task];
        if let Wait::Lock(_) = one.wait {
            self.vms[one.vm].lock_wait.add(waited);
        }
        one.progress = one.progress.saturating_add(1);
        let told = one.reported || one.in_spin_loop;
        (one.wait, one.satisfied, one.reported) = (Wait::Nothing, false, false);
        one.at += 1;
        if told {
            self.touch(task);
        }
        self.trace_wait(cpu, task, false);
        self.cpus[cpu].segment = Segment::Switch;
        self.advance(cpu, task);
    }

    fn begin_spin(&mut self, cpu: usize, task: usize) {
        let now = self.now;
        let one = &mut self.tasks[task];
        let vm = &self.vms[one.vm].vm;
        let window = if vm.arm.kernel && (one.kernel || vm.ple.user_mode) { one.window } else { NEVER };
        let report = match vm.arm.source {
            Source::Port { .. } | Source::Sampler { .. } => one.report_left.max(one.quiet_until.saturating_sub(now)),
            Source::None | Source::Tracepoint { .. } => NEVER,
        };
        one.spin_by_window = window <= report;
        one.spin_from = now;
        self.begin(cpu, Segment::Spin, window.min(report));
    }

    fn begin_halt(&mut self, cpu: usize, task: usize) {
        let native = self.vms[self.tasks[task].vm].vm.native;
        let ns = if native { self.params.yield_call_ns } else { self.params.halt_exit_ns };
        self.begin(cpu, Segment::Exit(super::state::Then::Halt), ns);
    }

    /// The exit of a HLT ends: the task blocks, unless what it waits for has come meanwhile.
    pub(crate) fn halt_now(&mut self, cpu: usize, task: usize) {
        let one = &self.tasks[task];
        if one.satisfied || !one.interrupts.is_empty() {
            return self.enter_guest(cpu);
        }
        let vm = one.vm;
        self.vms[vm].counts.halts += 1;
        self.block(cpu, State::Halted, 0);
    }

    /// A sleep or a park of `task` runs out.
    pub(crate) fn task_event(&mut self, task: usize) {
        self.timers.set(self.slot(task), NEVER);
        if self.tasks[task].wait == Wait::Timer {
            self.tasks[task].satisfied = true;
        }
        let due = match self.tasks[task].state {
            State::Halted => self.tasks[task].satisfied,
            State::Parked => true,
            State::Running | State::Queued => false,
        };
        if due {
            self.wake(task, None);
        }
    }
}
