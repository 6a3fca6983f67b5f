// SPDX-License-Identifier: Apache-2.0
//! Locks, barriers, interrupts and messages: who waits, who is let go.
//!
//! Invariants: a lock has at most one owner; FIFO locks are passed to the one who waits longest, running or not; whoever
//! waits and is let go is woken if it sleeps, so no wake-up is lost.

use super::state::{Segment, State, Wait};
use super::trace::TraceEvent;
use super::world::World;
use crate::guest::LockKind;

impl World {
    /// Tries to take a lock for `task`; otherwise queues it. Whether it was taken.
    pub(crate) fn acquire(&mut self, task: usize, lock: usize) -> bool {
        let (vm, index, cpu) = (self.tasks[task].vm, self.tasks[task].index, self.tasks[task].cpu);
        let id = self.task_id(task);
        let one = &mut self.vms[vm].locks[lock];
        let free = match one.kind {
            LockKind::Ring => one.owner.is_none() && one.turn == index,
            LockKind::Unfair => one.owner.is_none(),
            LockKind::Ticket | LockKind::Queued => one.owner.is_none() && one.waiters.is_empty(),
        };
        if free {
            one.owner = Some(id);
            self.tasks[task].line_from = one.last_cpu;
            one.last_cpu = cpu;
        } else {
            one.waiters.push_back(id);
        }
        free
    }

    /// Lets a lock go and passes it on.
    pub(crate) fn release(&mut self, task: usize, lock: usize) {
        let (vm, cpu) = (self.tasks[task].vm, self.tasks[task].cpu);
        let (vcpus, first) = (self.vms[vm].vm.vcpus, self.vms[vm].first);
        self.vms[vm].counts.hand_overs += 1;
        let one = &mut self.vms[vm].locks[lock];
        debug_assert_eq!(one.owner, u32::try_from(task).ok(), "only the owner lets go");
        one.owner = None;
        one.last_cpu = cpu;
        let next = match one.kind {
            LockKind::Ring => {
                one.turn = (one.turn + 1) % vcpus;
                let turn = first + one.turn;
                one.waiters.iter().copied().find(|&waiter| waiter as usize == turn)
            }
            LockKind::Ticket | LockKind::Queued => one.waiters.front().copied(),
            LockKind::Unfair => self.first_to_look(vm, lock),
        };
        if let Some(next) = next {
            self.pass(next as usize, lock, cpu);
        }
    }

    /// Of those who spin on a CPU for an unfair lock, one at random; of sleepers, the first.
    fn first_to_look(&mut self, vm: usize, lock: usize) -> Option<u32> {
        let waiters = &self.vms[vm].locks[lock].waiters;
        let running = |&waiter: &u32| {
            let task = &self.tasks[waiter as usize];
            task.state == State::Running && self.cpus[task.cpu].segment == Segment::Spin
        };
        let looking = waiters.iter().copied().filter(running).count() as u64;
        if looking > 0 {
            let pick = usize::try_from(self.rng.below(looking)).unwrap_or(0);
            return waiters.iter().copied().filter(running).nth(pick);
        }
        waiters.iter().copied().find(|&waiter| self.tasks[waiter as usize].waits_halted)
    }

    /// Makes `task` the owner.
    fn pass(&mut self, task: usize, lock: usize, from: usize) {
        let id = self.task_id(task);
        let vm = self.tasks[task].vm;
        let one = &mut self.vms[vm].locks[lock];
        one.owner = Some(id);
        one.last_cpu = self.tasks[task].cpu;
        if one.waiters.front() == Some(&id) {
            one.waiters.pop_front();
        } else {
            one.waiters.retain(|&waiter| waiter != id);
        }
        self.tasks[task].line_from = from;
        self.let_go(task);
    }

    /// A spinner that comes back to its CPU looks at an unfair lock.
    pub(crate) fn look_again(&mut self, task: usize) -> bool {
        let Wait::Lock(lock) = self.tasks[task].wait else { return false };
        let one = &self.vms[self.tasks[task].vm].locks[lock];
        if one.kind != LockKind::Unfair || one.owner.is_some() {
            return false;
        }
        let from = one.last_cpu;
        self.pass(task, lock, from);
        true
    }

    /// The wait of `task` is over: it is told if it looks, and woken if it sleeps.
    pub(crate) fn let_go(&mut self, task: usize) {
        self.tasks[task].satisfied = true;
        match self.tasks[task].state {
            State::Running => {
                let cpu = self.tasks[task].cpu;
                if self.cpus[cpu].segment == Segment::Spin {
                    self.leave_guest(cpu);
                    self.claim(cpu, task);
                }
            }
            State::Halted => self.wake(task, None),
            State::Queued | State::Parked => {}
        }
    }

    /// Starts the transfer of the line that says so.
    pub(crate) fn claim(&mut self, cpu: usize, task: usize) {
        let one = &self.tasks[task];
        let line = self.params.line_ns[self.host.distance(one.line_from, cpu) as usize];
        let lines = if one.wait == Wait::Message { one.lines } else { 1 };
        let watchers = match one.wait {
            Wait::Lock(lock) => {
                let lock = &self.vms[one.vm].locks[lock];
                // All who watch a ticket's line fetch it anew; on average half of them come first.
                if lock.kind == LockKind::Ticket { self.looking(lock) / 2 } else { 0 }
            }
            _ => 0,
        };
        self.begin(cpu, Segment::Claim, (line * (lines + watchers)).max(1));
    }

    fn looking(&self, lock: &super::state::Lock) -> u64 {
        let on_cpu = |&&waiter: &&u32| self.tasks[waiter as usize].state == State::Running;
        lock.waiters.iter().filter(on_cpu).count() as u64
    }

    /// `task` reaches the barrier. Whether all are there.
    pub(crate) fn arrive(&mut self, task: usize) -> bool {
        let (vm, cpu) = (self.tasks[task].vm, self.tasks[task].cpu);
        let id = self.task_id(task);
        let machine = &mut self.vms[vm];
        if machine.at_barrier.len() + 1 < machine.vm.vcpus {
            machine.at_barrier.push(id);
            return false;
        }
        for waiter in std::mem::take(&mut machine.at_barrier) {
            self.tasks[waiter as usize].line_from = cpu;
            self.let_go(waiter as usize);
        }
        true
    }

    /// Interrupts all others that are not halted. How many.
    pub(crate) fn shoot_down(&mut self, task: usize) -> usize {
        let vm = self.tasks[task].vm;
        let (first, count) = (self.vms[vm].first, self.vms[vm].vm.vcpus);
        let id = self.task_id(task);
        let mut sent = 0;
        for other in first..first + count {
            // A halted CPU is in lazy TLB mode and is flushed when it comes back.
            if other == task || self.tasks[other].state == State::Halted {
                continue;
            }
            sent += 1;
            self.tasks[other].interrupts.push(id);
            self.touch(other);
        }
        self.tasks[task].acks_left = sent;
        for other in first..first + count {
            if self.tasks[other].interrupts.last() == Some(&id) {
                self.deliver(other);
            }
        }
        sent
    }

    /// A running task takes its interrupts now, unless it has them off; a parked one is woken.
    fn deliver(&mut self, task: usize) {
        let cpu = self.tasks[task].cpu;
        match self.tasks[task].state {
            State::Running => {
                let segment = self.cpus[cpu].segment;
                if segment.in_guest() && segment != Segment::Handler && !self.tasks[task].irqs_off {
                    self.leave_guest(cpu);
                    self.enter_guest(cpu);
                }
            }
            // An interrupt ends a park: the thread is kicked out of its futex.
            State::Parked => self.wake(task, None),
            State::Queued | State::Halted => {}
        }
    }

    /// One interrupt is handled: its sender is told.
    pub(crate) fn handler_ends(&mut self, cpu: usize, task: usize) {
        if let Some(sender) = self.tasks[task].interrupts.pop() {
            let sender = sender as usize;
            self.tasks[sender].acks_left -= 1;
            if self.tasks[sender].acks_left == 0 {
                self.tasks[sender].line_from = cpu;
                self.let_go(sender);
            }
        }
        self.touch(task);
        // Letting the sender go may have taken this CPU.
        if self.cpus[cpu].current == u32::try_from(task).ok() && self.cpus[cpu].segment == Segment::Handler {
            self.enter_guest(cpu);
        }
    }

    /// Sends `lines` cache lines to the partner.
    pub(crate) fn send(&mut self, task: usize, lines: u64) {
        let vm = &self.vms[self.tasks[task].vm];
        let partner = vm.first + (self.tasks[task].index ^ 1);
        let cpu = self.tasks[task].cpu;
        let one = &mut self.tasks[partner];
        if one.wait == Wait::Message && !one.satisfied {
            (one.line_from, one.lines, one.satisfied) = (cpu, lines, true);
            if one.state == State::Halted {
                self.wake(partner, Some(cpu));
            }
        } else {
            one.messages.push((cpu, lines));
        }
    }

    /// Notes in the trace that a wait begins or ends.
    pub(crate) fn trace_wait(&mut self, cpu: usize, task: usize, begins: bool) {
        if self.trace.is_on() {
            let owner = self.awaited(task);
            let event = if begins { TraceEvent::Spins { task, cpu, owner } } else { TraceEvent::Gets { task, cpu } };
            self.trace.push(self.now, event);
        }
    }

    /// The task that can end the wait of `task`, if one can be named.
    pub(crate) fn awaited(&self, task: usize) -> Option<usize> {
        let vm = &self.vms[self.tasks[task].vm];
        match self.tasks[task].wait {
            Wait::Lock(lock) => {
                let lock = &vm.locks[lock];
                let turn = (lock.kind == LockKind::Ring).then(|| vm.first + lock.turn);
                lock.owner.map(|owner| owner as usize).or(turn)
            }
            Wait::Acks => {
                let owes = |other: &usize| self.tasks[*other].interrupts.iter().any(|&from| from as usize == task);
                (vm.first..vm.first + vm.vm.vcpus).find(owes)
            }
            Wait::Barrier => (vm.first..vm.first + vm.vm.vcpus).find(|&other| self.tasks[other].wait != Wait::Barrier),
            Wait::Nothing | Wait::Message | Wait::Timer => None,
        }
    }
}
