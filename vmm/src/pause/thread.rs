// SPDX-License-Identifier: Apache-2.0
//! The part of the pause handling that lives on a vCPU's own thread.
//!
//! Invariant: every wait here is bounded, and a kick of the thread ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::pause::YieldOutcome;
use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::clock;
use super::deed::Then;
use super::directed;
use super::driver::Driver;
use super::helper;
use super::order::{self, Order, Report};
use super::park::Woken;
use super::partners::Partners;
use super::rules::Attached;
use super::seat::Seat;
use super::source::{Moment, PauseSource, Spin, Tap};
use super::yielding::{current_cpu, sched_yield, switches};
use crate::host::runqueue::OwnThreads;
use crate::kvm::helper_vcpu::HelperVcpu;
use crate::kvm::vcpu::Vcpu;
use crate::vcpu::hook::VcpuHook;

/// For so long a yield that let another thread run shows that others want the CPU. Shorter than a slice (3 ms) after which
/// they may be gone.
const CROWDED_NS: u64 = 1_000_000;

/// What the thread of one vCPU brings to the driver.
pub struct VcpuPause {
    driver: Arc<Driver>,
    me: VcpuIndex,
    kit: Kit,
    tid: i32,
    /// The sources' parts on this thread, and the generation they are of.
    taps: Vec<Box<dyn Tap>>,
    generation: u64,
    running: bool,
    quiet_until: Nanos,
    /// How many times the usual spins it may spin before its next report.
    patience: u32,
    /// When a yield of its own last let another thread run.
    crowded_at: Nanos,
    /// It has yielded, parked or slept since the run loop last asked.
    let_go: bool,
    switches: u64,
    count: Option<u32>,
    partners: Partners,
    helper: Option<HelperVcpu>,
}

/// What the threads have in common.
#[derive(Clone)]
pub struct Kit {
    /// Every source there is.
    pub registry: Arc<[Arc<dyn PauseSource>]>,
    /// Where threads make themselves known.
    pub threads: Arc<OwnThreads>,
}

impl VcpuPause {
    /// For the thread of `me`.
    #[must_use]
    pub fn new(driver: Arc<Driver>, me: VcpuIndex, kit: Kit) -> Self {
        Self {
            driver,
            me,
            kit,
            tid: 0,
            taps: Vec::new(),
            generation: 0,
            running: false,
            quiet_until: Nanos(0),
            patience: 1,
            crowded_at: Nanos(0),
            let_go: false,
            switches: 0,
            count: None,
            partners: Partners::default(),
            helper: None,
        }
    }

    fn seat(&self) -> &Seat {
        self.driver.seat(self.me)
    }

    /// Takes up the sources that hold now, in place of those it had.
    fn attach(&mut self) {
        self.detach();
        self.generation = self.driver.generation();
        let Attached { plan, sources } = self.driver.attached();
        for source in sources {
            match source.attach(&plan, self.tid) {
                Ok(tap) => self.taps.push(tap),
                Err(error) => self.driver.note_unseen(self.me, &error),
            }
        }
        (self.quiet_until, self.patience, self.count) = (Nanos(0), 1, None);
    }

    fn detach(&mut self) {
        let seat = self.driver.seat(self.me);
        self.taps.drain(..).for_each(|mut tap| tap.detach(seat));
    }

    /// Asks every source whether the vCPU spins, and deals with those that say so.
    fn ask(&mut self, mut moment: Moment<'_>) {
        for at in 0..self.taps.len() {
            let seat = self.driver.seat(self.me);
            if let Some(spin) = self.taps[at].tell(&mut moment, seat) {
                let helped = self.event(spin);
                self.taps[at].settled(helped);
            }
        }
    }

    /// Deals with one pause event; true if somebody was let run for it.
    fn event(&mut self, Spin { owner, count }: Spin) -> bool {
        let seat = self.driver.seat(self.me);
        seat.events.add(1);
        let now = clock::now();
        if now.is_before(self.quiet_until) && !self.driver.anybody_parked() {
            seat.quiet.add(1);
            return false;
        }
        if self.driver.lookout().is_worth_more() {
            helper::try_yielding(&self.driver);
        }
        let switches = switches();
        let progress = count.map(|count| self.count.map_or(0, |before| count.wrapping_sub(before)));
        self.count = count.or(self.count);
        let report = Report {
            owner,
            progress,
            descheduled: switches != self.switches,
            cpu: current_cpu(),
            crowded: now.since(self.crowded_at) < CROWDED_NS,
        };
        seat.heard(report.cpu, now);
        self.switches = switches;
        let order = self.driver.decide(self.me, &report, now);
        self.quiet_until = order.quiet_until;
        self.patience = if order.spins_on { order::longer(self.patience) } else { order.patience };
        self.driver.rouse(&order);
        self.note(progress, order.deed.target);
        !order.deed.is_nothing() && self.act(&order, now)
    }

    /// Takes down what a report said of waits that have ended, and whom the answer to it favours.
    fn note(&mut self, finished: Option<u32>, target: Option<VcpuIndex>) {
        if finished.is_some() || target.is_some() {
            finished.into_iter().for_each(|waits| self.partners.finished(waits));
            target.into_iter().for_each(|target| self.partners.yielded_to(target));
            self.driver.seat(self.me).show(&self.partners);
        }
    }

    fn act(&mut self, order: &Order, since: Nanos) -> bool {
        self.let_go |= order.deed.then != Then::Nothing;
        let seat = self.driver.seat(self.me);
        let before = self.switches;
        let (outcome, now) = match order.deed.then {
            Then::Nothing => (Some(YieldOutcome::Boosted), since),
            Then::Yield => {
                sched_yield();
                let after = switches();
                let outcome = if after == self.switches { YieldOutcome::NotBoosted } else { YieldOutcome::Boosted };
                self.switches = after;
                let now = clock::now();
                if outcome == YieldOutcome::Boosted {
                    self.crowded_at = now;
                }
                seat.yielded_ns.add(now.since(since));
                (Some(outcome), now)
            }
            Then::Park(until) => {
                let woken = seat.parker.wait(until);
                let now = clock::now();
                self.switches = switches();
                seat.parks.add(1);
                seat.parked_ns.add(now.since(since));
                let outcome = match woken {
                    Woken::ByName => Some(YieldOutcome::Boosted),
                    Woken::ByTime => Some(YieldOutcome::NotBoosted),
                    Woken::ByKick => None,
                };
                (outcome, now)
            }
            Then::Hypercall(target) => {
                let outcome = directed::yield_to(&self.driver, self.me, &mut self.helper, target);
                self.switches = switches();
                let now = clock::now();
                seat.yielded_ns.add(now.since(since));
                (outcome, now)
            }
        };
        seat.own_switches.add(self.switches.wrapping_sub(before));
        self.driver.conclude(self.me, order, outcome, now.since(since), now);
        outcome == Some(YieldOutcome::Boosted)
    }

    /// Serves a hold that was laid on this vCPU: blocks until it ends.
    fn held(&mut self) {
        self.let_go = true;
        let seat = self.seat();
        let until = Nanos(seat.hold_until_ns.swap(0, Ordering::Relaxed));
        let start = clock::now();
        if !start.is_before(until) {
            return;
        }
        seat.held.store(true, Ordering::Relaxed);
        seat.hold.arm();
        let _ = seat.hold.wait(until);
        seat.held.store(false, Ordering::Relaxed);
        seat.holds.add(1);
        seat.held_ns.add(clock::now().since(start));
    }
}

impl VcpuHook for VcpuPause {
    fn begin(&mut self, tid: i32, vcpu: &mut Vcpu) {
        self.kit.registry.iter().for_each(|source| source.begin(vcpu));
        self.tid = tid;
        self.seat().tid.store(tid, Ordering::Release);
        self.kit.threads.register(self.me.index(), tid);
        self.helper = self.driver.hypercalls().make(self.me);
        self.attach();
    }

    fn entering(&mut self) {
        if !self.running {
            self.running = true;
            self.driver.set_running(self.me, true, current_cpu());
        }
        if self.generation != self.driver.generation() {
            self.attach();
        }
        self.ask(Moment::Entering);
        if self.seat().hold_until_ns.load(Ordering::Relaxed) != 0 {
            self.held();
        }
        let seat = self.seat();
        seat.entries.add(1);
        seat.named.store(false, Ordering::Relaxed);
    }

    fn let_go_of_cpu(&mut self) -> bool {
        std::mem::take(&mut self.let_go)
    }

    fn takes(&mut self, number: u16, data: &[u8]) -> bool {
        self.taps.iter_mut().any(|tap| tap.takes(number, data))
    }

    fn pause(&mut self, vcpu: &mut Vcpu) {
        self.ask(Moment::PortWrite(vcpu));
        let patience = self.patience;
        self.taps.iter_mut().for_each(|tap| tap.answer(vcpu, patience));
    }

    fn interrupted(&mut self, vcpu: &mut Vcpu) {
        self.ask(Moment::Interrupted(vcpu));
    }

    fn resting(&mut self) {
        if self.running {
            self.running = false;
            self.driver.set_running(self.me, false, None);
        }
    }

    fn ended(&mut self) {
        self.resting();
        self.detach();
        self.seat().tid.store(0, Ordering::Release);
    }
}
