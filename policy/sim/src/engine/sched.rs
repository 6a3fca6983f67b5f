// SPDX-License-Identifier: Apache-2.0
//! Who runs where: pick, switch, wake, block, tick, pull.
//!
//! Invariant: a CPU with a waiting task is never idle longer than its look for work lasts.

use policy::placement::rate::CpuHabit;
use policy::placement::scan_budget;
use policy::time::Nanos;

use super::state::{Segment, State};
use super::trace::TraceEvent;
use super::world::World;
use crate::host::{AsymRule, Distance, NewIdle, ScanBudget, WakeScan};
use crate::timers::NEVER;

impl World {
    /// Gives `cpu`, which has no current task, to the next one. `extra` is what the way here cost.
    pub(crate) fn schedule(&mut self, cpu: usize, extra: u64) {
        self.charge(cpu);
        let one = &mut self.cpus[cpu];
        one.resched = false;
        let Some(next) = one.queue.pick(&self.entities) else { return self.out_of_work(cpu) };
        self.dequeue(cpu, next);
        self.cpus[cpu].queue.skip = None;
        self.switch_to(cpu, next, extra);
    }

    pub(crate) fn dequeue(&mut self, cpu: usize, task: u32) {
        self.cpus[cpu].queue.remove(task);
        self.waiting_total -= 1;
        self.touch_cpu(cpu);
    }

    fn switch_to(&mut self, cpu: usize, next: u32, extra: u64) {
        let task = next as usize;
        let was_idle = self.cpus[cpu].segment == Segment::Idle;
        let same = self.cpus[cpu].last == Some(next);
        let distance = self.host.distance(self.tasks[task].ran_on, cpu);
        let lock = self.cpus[cpu].lock_free.saturating_sub(self.now);
        let mut cost = extra + lock + self.params.refill_ns[distance as usize];
        cost += if same && !was_idle { self.params.switch_ns / 4 } else { self.params.switch_ns };
        if was_idle {
            cost += self.params.idle_exit_ns;
            self.leave_idle(cpu);
        }
        let window = self.vms[self.tasks[task].vm].vm.ple.window_ns;
        let one = &mut self.tasks[task];
        one.migrations += u64::from(distance != Distance::Same);
        (one.cpu, one.ran_on, one.preempted) = (cpu, cpu, false);
        // Who is picked again at once was never switched out: no `kvm_sched_in` (preempt notifiers of kernel/sched/core.c).
        if !same || was_idle {
            (one.window, one.exits_in_row, one.descheduled) = (window, 0, true);
        }
        self.set_state(task, State::Running);
        let slot = &mut self.cpus[cpu];
        (slot.current, slot.last) = (Some(next), Some(next));
        if self.trace.is_on() {
            self.trace.push(self.now, TraceEvent::Runs { task, cpu });
        }
        self.begin(cpu, Segment::Switch, cost.max(1));
        if was_idle {
            self.refresh_siblings(cpu);
        }
    }

    /// A thread of the core became busy or idle: the others run at another speed from now on.
    fn refresh_siblings(&mut self, cpu: usize) {
        if self.host.cores.group(cpu).len() < 2 {
            return;
        }
        for at in 0..self.host.cores.group(cpu).len() {
            let other = self.host.cores.group(cpu)[at];
            if other != cpu && self.cpus[other].segment == Segment::Work {
                self.leave_guest(other);
                self.enter_guest(other);
            }
        }
    }

    fn leave_idle(&mut self, cpu: usize) {
        let idle = self.now - self.cpus[cpu].idle_since;
        let one = &mut self.cpus[cpu];
        one.mean_idle = one.mean_idle - one.mean_idle / 8 + idle / 8;
        self.idle_in_llc[self.host.llcs.of[cpu]] -= 1;
    }

    fn go_idle(&mut self, cpu: usize) {
        self.begin(cpu, Segment::Idle, NEVER);
        self.cpus[cpu].idle_since = self.now;
        self.idle_in_llc[self.host.llcs.of[cpu]] += 1;
        self.refresh_siblings(cpu);
    }

    pub(crate) fn is_idle(&self, cpu: usize) -> bool {
        self.cpus[cpu].segment == Segment::Idle
    }

    /// Takes the CPU from its current task, which goes on waiting.
    pub(crate) fn preempt(&mut self, cpu: usize) {
        self.leave_guest(cpu);
        let Some(task) = self.cpus[cpu].current else { return };
        self.tasks[task as usize].preempted = true;
        let vm = self.tasks[task as usize].vm;
        self.vms[vm].counts.preemptions += 1;
        self.put_back(cpu, "preempted");
        self.schedule(cpu, 0);
    }

    /// The current task of `cpu` waits from now on. Its time is booked.
    pub(crate) fn put_back(&mut self, cpu: usize, why: &'static str) {
        let Some(task) = self.cpus[cpu].current.take() else { return };
        self.stopped(cpu, task as usize, why);
        self.set_state(task as usize, State::Queued);
        self.cpus[cpu].queue.waiting.push(task);
        self.waiting_total += 1;
        self.touch_cpu(cpu);
    }

    fn stopped(&mut self, cpu: usize, task: usize, why: &'static str) {
        self.tasks[task].last_ran = self.now;
        if self.trace.is_on() {
            self.trace.push(self.now, TraceEvent::Stops { task, cpu, why });
        }
    }

    /// The current task of `cpu` sleeps from now on. `extra` is what falling asleep costs the CPU.
    pub(crate) fn block(&mut self, cpu: usize, state: State, extra: u64) {
        self.charge(cpu);
        let Some(task) = self.cpus[cpu].current.take() else { return };
        let slice = self.params.slice_ns;
        self.cpus[cpu].queue.settle_lag(&mut self.entities, task, Some(task), slice);
        self.stopped(cpu, task as usize, if state == State::Parked { "parked" } else { "halted" });
        self.set_state(task as usize, state);
        self.schedule(cpu, extra);
    }

    /// A sleeping task wants a CPU. `waker` is the CPU that says so, if it is near to the matter.
    pub(crate) fn wake(&mut self, task: usize, waker: Option<usize>) {
        self.timers.set(self.slot(task), NEVER);
        let (cpu, looked) = self.select_cpu(task, waker);
        self.tasks[task].preempted = false;
        self.enqueue(task, cpu, looked * self.params.scan_cpu_ns);
    }

    /// Puts a task that is on no queue on that of `cpu`, which runs it at once if it is idle.
    pub(crate) fn enqueue(&mut self, task: usize, cpu: usize, extra: u64) {
        self.charge(cpu);
        self.set_state(task, State::Queued);
        self.tasks[task].cpu = cpu;
        let id = self.task_id(task);
        let slice = self.params.slice_ns;
        let one = &mut self.cpus[cpu];
        one.queue.place(&mut self.entities, id, one.current, slice);
        self.waiting_total += 1;
        if self.is_idle(cpu) {
            return self.schedule(cpu, extra);
        }
        self.touch_cpu(cpu);
        let one = &self.cpus[cpu];
        let Some(current) = one.current else { return };
        let mean = one.queue.mean(&self.entities, Some(current));
        let (mine, its) = (self.entities[task], self.entities[current as usize]);
        if self.params.wake_preempts && mine.vruntime <= mean && mine.deadline < its.deadline {
            return self.resched(cpu);
        }
        self.arm(cpu);
    }

    /// The scheduler wants `cpu` back: at once if its task is in the guest, else when its exit is over.
    pub(crate) fn resched(&mut self, cpu: usize) {
        if self.cpus[cpu].segment.in_guest() {
            self.preempt(cpu);
        } else if self.cpus[cpu].current.is_some() {
            self.cpus[cpu].resched = true;
            self.arm(cpu);
        }
    }

    pub(crate) fn may_run(&self, task: usize, cpu: usize) -> bool {
        let one = &self.tasks[task];
        one.pin.map_or_else(|| self.vms[one.vm].allowed[cpu], |pin| pin == cpu)
    }

    /// Where a woken task goes, and how many CPUs were looked at.
    fn select_cpu(&self, task: usize, waker: Option<usize>) -> (usize, u64) {
        let one = &self.tasks[task];
        if let Some(pin) = one.pin {
            return (pin, 0);
        }
        let previous = one.cpu;
        // A waker that is about to sleep draws the task near (WF_SYNC), if the two share a cache.
        let near = waker.filter(|&cpu| self.may_run(task, cpu));
        let target = near.unwrap_or(previous);
        if self.is_idle(target) {
            return (target, 0);
        }
        let clustered = self.params.wake_scan == WakeScan::Cluster && self.host.topology.has_clusters();
        let reach = self.host.distance(previous, target);
        let close = if clustered { Distance::Cluster } else { Distance::Llc };
        if self.is_idle(previous) && reach <= close {
            return (previous, 0);
        }
        let (found, looked) = self.scan(task, target, clustered);
        let fallback = if self.is_idle(previous) && reach <= Distance::Llc { previous } else { target };
        (found.unwrap_or(fallback), looked)
    }

    /// Looks for an idle CPU in the cache of `target`.
    fn scan(&self, task: usize, target: usize, clustered: bool) -> (Option<usize>, u64) {
        let llc = self.host.llcs.of[target];
        if self.idle_in_llc[llc] == 0 {
            return (None, 0);
        }
        let all = self.host.llcs.group(target);
        let size = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let busy = size - self.idle_in_llc[llc];
        let utilisation = busy * 1024 / size.max(1);
        let mut budget = u64::from(match self.params.scan_budget {
            ScanBudget::All => size,
            ScanBudget::Policy => scan_budget(size, utilisation),
            // The kernel looks at none from 85 % on.
            ScanBudget::Kernel if utilisation > 870 => 0,
            ScanBudget::Kernel => scan_budget(size, utilisation) + 1,
        });
        let cluster = self.host.clusters.of[target];
        let inside = self.host.clusters.group(target).iter().filter(|_| clustered);
        let start = all.partition_point(|&cpu| cpu <= target);
        let outside = all[start..].iter().chain(&all[..start]);
        let outside = outside.filter(|&&cpu| !clustered || self.host.clusters.of[cpu] != cluster);
        let mut looked = 0;
        for &cpu in inside.chain(outside) {
            if budget == 0 {
                break;
            }
            budget -= 1;
            looked += 1;
            if self.is_idle(cpu) && self.may_run(task, cpu) {
                return (Some(cpu), looked);
            }
        }
        (None, looked)
    }

    /// The tick of `cpu`: slices end, and idle CPUs are given what waits here.
    pub(crate) fn tick(&mut self, cpu: usize) {
        self.charge(cpu);
        let Some(current) = self.cpus[cpu].current else { return self.arm(cpu) };
        if !self.cpus[cpu].queue.waiting.is_empty() {
            self.relieve(cpu);
        }
        let waits = !self.cpus[cpu].queue.waiting.is_empty();
        let entity = &mut self.entities[current as usize];
        if entity.vruntime >= entity.deadline {
            entity.deadline = entity.vruntime + self.params.slice_ns.cast_signed();
            if waits {
                return self.resched(cpu);
            }
        }
        self.arm(cpu);
    }

    /// Gives a waiting task to an idle CPU (the kick of the nohz balancer), or now and then to a less loaded one.
    fn relieve(&mut self, cpu: usize) {
        let waiting = self.cpus[cpu].queue.waiting.clone();
        for task in waiting {
            if let Some(to) = self.idle_for(task as usize, cpu) {
                return self.migrate(task, cpu, to);
            }
        }
        let turn = self.now / self.params.tick_ns % 8;
        if turn != cpu as u64 % 8 {
            return;
        }
        let length = |cpu: usize| self.cpus[cpu].queue.waiting.len();
        let Some(&to) = self.host.llcs.group(cpu).iter().min_by_key(|&&other| (length(other), other)) else { return };
        let mine = &self.cpus[cpu].queue.waiting;
        let movable = mine.iter().copied().find(|&task| self.may_run(task as usize, to));
        if let Some(task) = movable.filter(|_| length(cpu) >= length(to) + 2) {
            self.migrate(task, cpu, to);
        }
    }

    /// An idle CPU for a task that waits at `cpu`: in its cache, its node, anywhere.
    fn idle_for(&self, task: usize, cpu: usize) -> Option<usize> {
        if let Some(pin) = self.tasks[task].pin {
            return Some(pin).filter(|&pin| pin != cpu && self.is_idle(pin));
        }
        let node = self.host.nodes.of[cpu];
        let llcs = self.idle_in_llc.iter().enumerate().filter(|(_, idle)| **idle > 0).map(|(llc, _)| llc);
        let far = |llc: &usize| {
            let first = self.host.llcs.members[*llc][0];
            (*llc != self.host.llcs.of[cpu], self.host.nodes.of[first] != node, *llc)
        };
        let mut near: Vec<usize> = llcs.collect();
        near.sort_by_key(far);
        let fits = |other: &usize| self.is_idle(*other) && self.may_run(task, *other);
        near.iter().find_map(|&llc| self.host.llcs.members[llc].iter().copied().find(|other| fits(other)))
    }

    /// Moves a waiting task.
    pub(crate) fn migrate(&mut self, task: u32, from: usize, to: usize) {
        self.charge(from);
        let slice = self.params.slice_ns;
        let current = self.cpus[from].current;
        self.cpus[from].queue.settle_lag(&mut self.entities, task, current, slice);
        self.dequeue(from, task);
        self.enqueue(task as usize, to, 0);
        self.arm(from);
    }

    fn out_of_work(&mut self, cpu: usize) {
        let groups = self.waiting_total > 0 || self.params.asym != AsymRule::Off;
        let cost = self.params.balance_cpu_ns * self.host.llcs.group(cpu).len() as u64 + self.params.balance_cgroup_ns;
        let looks = groups
            && match self.params.newidle {
                NewIdle::Off => false,
                NewIdle::Always => true,
                NewIdle::Gated => self.cpus[cpu].mean_idle >= cost,
                NewIdle::Rated => self.rated(cpu, cost),
            };
        if looks {
            self.begin(cpu, Segment::Balance, cost.max(1));
        } else {
            self.go_idle(cpu);
        }
    }

    fn rated(&mut self, cpu: usize, cost: u64) -> bool {
        let (now, interval) = (Nanos(self.now), self.params.balance_interval_ns);
        let one = &mut self.cpus[cpu];
        one.rate.look(now, CpuHabit { average: one.average, mean_idle_ns: one.mean_idle }, interval, cost)
    }

    /// The look for work is over.
    pub(crate) fn balance_ends(&mut self, cpu: usize) {
        if self.cpus[cpu].queue.waiting.is_empty()
            && let Some((from, task)) = self.busiest(cpu)
        {
            self.charge(from);
            let slice = self.params.slice_ns;
            let current = self.cpus[from].current;
            self.cpus[from].queue.settle_lag(&mut self.entities, task, current, slice);
            self.dequeue(from, task);
            self.arm(from);
            self.enqueue(task as usize, cpu, 0);
        }
        if !self.cpus[cpu].queue.waiting.is_empty() {
            return self.schedule(cpu, 0);
        }
        self.go_idle(cpu);
        self.pull_preferred(cpu);
    }

    /// The task to pull to `cpu`, from the longest queue of the nearest group that has one.
    fn busiest(&self, cpu: usize) -> Option<(usize, u32)> {
        let cool = |task: &u32| {
            let one = &self.tasks[*task as usize];
            self.now - one.last_ran >= self.params.hot_ns && self.may_run(*task as usize, cpu)
        };
        if let Some(first) = self.first_by_number(cpu, &cool) {
            return Some(first);
        }
        let levels = [self.host.llcs.group(cpu), self.host.nodes.group(cpu)];
        let longest = |group: &mut dyn Iterator<Item = usize>| {
            let busy = group.filter(|&other| other != cpu && !self.cpus[other].queue.waiting.is_empty());
            busy.filter_map(|other| Some((other, *self.cpus[other].queue.waiting.iter().find(|task| cool(task))?)))
                .max_by_key(|&(other, _)| (self.cpus[other].queue.waiting.len(), std::cmp::Reverse(other)))
        };
        levels
            .into_iter()
            .find_map(|group| longest(&mut group.iter().copied()))
            .or_else(|| longest(&mut (0..self.cpus.len())))
    }
}
