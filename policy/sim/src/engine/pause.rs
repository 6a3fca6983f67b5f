// SPDX-License-Identifier: Apache-2.0
//! Pause loops: how hardware and kernel see them, how the monitor is told, and what is done.
//!
//! The decision itself is [`policy::pause::decide`], unchanged; this file is to it what the monitor's driver is on a live
//! host: it keeps the view, carries out the act and reports what came of it.

use policy::pause::{Act, Decision, How, OutcomeEvent, PauseEvent, VcpuState, VcpuView, YieldOutcome};
use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::state::{Pending, Segment, State, Then};
use super::trace::TraceEvent;
use super::world::World;
use crate::guest::{Action, Source};

fn index(at: usize) -> VcpuIndex {
    VcpuIndex(u32::try_from(at).unwrap_or(u32::MAX))
}

impl World {
    /// The spinner has spun for as long as hardware or guest count before they tell.
    pub(crate) fn spin_ends(&mut self, cpu: usize, task: usize) {
        let now = self.now;
        let owner = self.awaited(task);
        let one = &mut self.tasks[task];
        one.report_left = one.report_left.saturating_sub(now - one.spin_from);
        let machine = &mut self.vms[one.vm];
        if one.spin_by_window {
            machine.counts.pause_exits += 1;
            let ple = machine.vm.ple;
            one.window = one.window.saturating_mul(ple.grow).min(ple.max_ns);
            return self.begin(cpu, Segment::Exit(Then::OnSpin), self.params.ple_exit_ns);
        }
        one.named_owner = match machine.vm.arm.source {
            Source::Port { .. } => owner,
            Source::None | Source::Tracepoint { .. } | Source::Sampler { .. } => None,
        };
        one.report_left = machine.report_ns;
        let cost = match machine.vm.arm.source {
            Source::Port { .. } => self.params.port_exit_ns,
            Source::None | Source::Tracepoint { .. } | Source::Sampler { .. } => self.params.forced_exit_ns,
        };
        self.begin(cpu, Segment::Exit(Then::Decide), cost);
    }

    pub(crate) fn after_kernel(&mut self, cpu: usize, task: usize, cost: u64) {
        let one = &mut self.tasks[task];
        one.exits_in_row += 1;
        let forced = match self.vms[one.vm].vm.arm.source {
            Source::Tracepoint { every } => one.exits_in_row.is_multiple_of(every.max(1)),
            Source::None | Source::Port { .. } | Source::Sampler { .. } => false,
        };
        if forced && self.now >= one.quiet_until {
            one.named_owner = None;
            return self.begin(cpu, Segment::Exit(Then::Decide), cost + self.params.forced_exit_ns);
        }
        self.begin(cpu, Segment::Exit(Then::Return), cost.max(1));
    }

    /// The monitor is told, and acts.
    pub(crate) fn decide(&mut self, cpu: usize, task: usize) {
        let vm = self.tasks[task].vm;
        let sampled = matches!(self.vms[vm].vm.arm.source, Source::Sampler { .. });
        if sampled && self.tasks[task].satisfied {
            return self.begin(cpu, Segment::Exit(Then::Return), 1);
        }
        self.vms[vm].counts.events += 1;
        let first = self.vms[vm].first;
        let owner = self.tasks[task].named_owner;
        if let Some(owner) = owner {
            self.tasks[owner].named = owner != task;
        }
        let named = owner.map(|owner| index(owner - first));
        let act = match self.vms[vm].vm.arm.action {
            Action::Nothing => Act::Spin,
            Action::Yield => match named.filter(|_| owner != Some(task)) {
                Some(target) => Act::YieldTo { target, how: How::SchedYield },
                None => return self.yield_or_return(cpu, None, false),
            },
            Action::Park { bound_ns } => {
                let until = Nanos(self.now).after(bound_ns);
                match named {
                    _ if self.tasks[task].named || self.tasks[task].satisfied => Act::Spin,
                    Some(target) if owner != Some(task) => Act::YieldTo { target, how: How::WakeAndPark { until } },
                    Some(_) => Act::Spin,
                    None => Act::Park { until },
                }
            }
            Action::Policy(_) => {
                self.tasks[task].reported = true;
                self.touch(task);
                self.flush(vm);
                let decision = self.ask(task, named);
                self.tasks[task].quiet_until = decision.quiet_until.0;
                decision.act
            }
        };
        self.carry_out(cpu, task, act);
    }

    fn ask(&mut self, task: usize, owner: Option<VcpuIndex>) -> Decision {
        let now = Nanos(self.now);
        let one = &mut self.tasks[task];
        let counts = matches!(self.vms[one.vm].vm.arm.source, Source::Port { .. });
        let event = PauseEvent {
            source: index(one.index),
            owner,
            interrupted: None,
            progress: counts.then(|| std::mem::take(&mut one.progress)),
            named_since_entry: one.named,
            descheduled: std::mem::take(&mut one.descheduled),
        };
        let machine = &mut self.vms[one.vm];
        let Some(policy) = &mut machine.policy else {
            return Decision { act: Act::Spin, class: None, quiet_until: now };
        };
        let decision = policy.driver.decide(&event, now);
        if machine.balancer.is_some() {
            machine.pairs.count(machine.vm.vcpus, &event, &decision);
        }
        decision
    }

    fn carry_out(&mut self, cpu: usize, task: usize, act: Act) {
        let first = self.vms[self.tasks[task].vm].first;
        let resolve = |target: VcpuIndex| first + target.index();
        if self.trace.is_on() {
            let (what, target) = describe(act);
            let event = TraceEvent::Decides { task, cpu, what, target: target.map(resolve) };
            self.trace.push(self.now, event);
        }
        match act {
            Act::Spin | Act::Bail(_) => self.begin(cpu, Segment::Exit(Then::Return), 1),
            Act::Yield => self.yield_or_return(cpu, None, false),
            Act::Park { until } => self.park(cpu, task, None, until),
            Act::YieldTo { target, how } => {
                let target = resolve(target);
                match how {
                    How::SchedYield => self.yield_or_return(cpu, Some(target), false),
                    How::Wake => {
                        self.unpark(target);
                        self.report(task, Some(target), YieldOutcome::Boosted, false, 0);
                        self.begin(cpu, Segment::Exit(Then::Return), self.params.park_call_ns);
                    }
                    How::WakeThenYield => {
                        self.unpark(target);
                        self.yield_or_return(cpu, Some(target), true);
                    }
                    How::WakeAndPark { until } => {
                        self.unpark(target);
                        self.park(cpu, task, Some(target), until);
                    }
                    How::Hypercall => self.hypercall(cpu, task, target),
                }
            }
        }
    }

    /// The kernel's directed yield, reached through the helper vCPU.
    fn hypercall(&mut self, cpu: usize, task: usize, target: usize) {
        if self.both_alone(cpu, target) {
            self.report(task, Some(target), YieldOutcome::NobodyWaiting, false, 0);
        } else if self.tasks[target].state == State::Queued {
            self.tasks[task].pending = Some(Pending { target: Some(target), parked: false, since: self.now });
            let cost = self.params.forced_exit_ns + self.lock_both(cpu, self.tasks[target].cpu, 0);
            return self.yield_to(cpu, target, cost);
        } else {
            self.report(task, Some(target), YieldOutcome::NotBoosted, false, 0);
        }
        self.begin(cpu, Segment::Exit(Then::Return), self.params.forced_exit_ns);
    }

    fn yield_or_return(&mut self, cpu: usize, target: Option<usize>, woke: bool) {
        let Some(task) = self.cpus[cpu].current else { return };
        let task = task as usize;
        let extra = if woke { self.params.park_call_ns } else { 0 } + self.params.yield_call_ns;
        if self.cpus[cpu].queue.waiting.is_empty() {
            let outcome = if woke { YieldOutcome::Boosted } else { YieldOutcome::NobodyWaiting };
            self.report(task, target, outcome, false, 0);
            return self.begin(cpu, Segment::Exit(Then::Return), extra);
        }
        self.tasks[task].pending = Some(Pending { target, parked: false, since: self.now });
        self.yield_now(cpu, extra);
    }

    /// The current task of `cpu` lets others go first.
    pub(crate) fn yield_now(&mut self, cpu: usize, cost: u64) {
        let Some(task) = self.cpus[cpu].current else { return };
        let (kind, slice) = (self.params.yields, self.params.slice_ns);
        if !self.cpus[cpu].queue.waiting.is_empty() {
            self.cpus[cpu].queue.yields(&mut self.entities, task, kind, slice);
        }
        self.put_back(cpu, "yielded");
        self.schedule(cpu, cost);
    }

    fn park(&mut self, cpu: usize, task: usize, target: Option<usize>, until: Nanos) {
        self.tasks[task].pending = Some(Pending { target, parked: true, since: self.now });
        self.tasks[task].woken_by_name = false;
        self.timers.set(self.slot(task), until.0.max(self.now + 1));
        self.block(cpu, State::Parked, self.params.park_call_ns);
    }

    fn unpark(&mut self, target: usize) {
        if self.tasks[target].state == State::Parked {
            self.tasks[target].woken_by_name = true;
            self.wake(target, None);
        }
    }

    /// Reports the outcome of a yield or park, now that the task runs again.
    pub(crate) fn conclude(&mut self, task: usize) {
        let Some(pending) = self.tasks[task].pending.take() else { return };
        let one = &self.tasks[task];
        let donated = self.now - pending.since;
        // Straight back: nobody else ran in between.
        let helped = if pending.parked { one.woken_by_name } else { donated > 2 * self.params.switch_ns };
        let outcome = if helped { YieldOutcome::Boosted } else { YieldOutcome::NotBoosted };
        self.report(task, pending.target, outcome, pending.parked, donated);
    }

    fn report(&mut self, task: usize, target: Option<usize>, outcome: YieldOutcome, parked: bool, donated_ns: u64) {
        let one = &self.tasks[task];
        let machine = &mut self.vms[one.vm];
        machine.counts.acted += 1;
        machine.counts.outcomes[outcome.index()] += 1;
        let Some(policy) = &mut machine.policy else { return };
        let target = target.map(|target| index(target - machine.first));
        let event = OutcomeEvent { source: index(one.index), target, outcome, parked, donated_ns };
        policy.driver.outcome(&event, Nanos(self.now));
    }

    /// Notes that what the policy sees of `task` has changed.
    #[inline]
    pub(crate) fn touch(&mut self, task: usize) {
        let one = &mut self.tasks[task];
        if one.dirty {
            return;
        }
        if let Some(policy) = &mut self.vms[one.vm].policy {
            one.dirty = true;
            policy.dirty.push(u32::try_from(task).unwrap_or(u32::MAX));
        }
    }

    /// The length of the runqueue of `cpu` has changed.
    pub(crate) fn touch_cpu(&mut self, cpu: usize) {
        if !self.views {
            return;
        }
        for at in 0..self.cpus[cpu].queue.waiting.len() {
            self.touch(self.cpus[cpu].queue.waiting[at] as usize);
        }
        if let Some(task) = self.cpus[cpu].current {
            self.touch(task as usize);
        }
    }

    /// Brings the view of one VM up to date.
    fn flush(&mut self, vm: usize) {
        let Some(mut policy) = self.vms[vm].policy.take() else { return };
        for task in policy.dirty.drain(..) {
            let task = task as usize;
            policy.driver.show(index(self.tasks[task].index), self.seen(task));
            self.tasks[task].dirty = false;
        }
        self.vms[vm].policy = Some(policy);
    }

    fn seen(&self, task: usize) -> VcpuView {
        let one = &self.tasks[task];
        let queued = one.state == State::Queued;
        let runs = queued || one.state == State::Running;
        VcpuView {
            state: match one.state {
                State::Running => VcpuState::Running,
                State::Queued => VcpuState::Queued,
                State::Halted => VcpuState::Halted,
                State::Parked => VcpuState::Parked,
            },
            spinning: one.reported,
            pending_interrupt: !one.interrupts.is_empty(),
            preempted: queued && one.preempted,
            in_kernel: queued.then_some(one.kernel),
            cpu: Some(self.host.topology.cpus()[one.cpu].id),
            runqueue: runs.then(|| u32::try_from(self.length(one.cpu)).unwrap_or(u32::MAX)),
            waiting_since: queued.then_some(Nanos(one.state_since)),
        }
    }
}

fn describe(act: Act) -> (&'static str, Option<VcpuIndex>) {
    match act {
        Act::Spin => ("spin", None),
        Act::Yield => ("step aside", None),
        Act::Park { .. } => ("park", None),
        Act::Bail(reason) => (reason.name(), None),
        Act::YieldTo { target, how } => {
            let what = match how {
                How::SchedYield => "yield",
                How::Wake => "wake",
                How::WakeThenYield => "wake, yield",
                How::WakeAndPark { .. } => "wake, park",
                How::Hypercall => "yield to",
            };
            (what, Some(target))
        }
    }
}
