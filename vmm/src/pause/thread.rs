// SPDX-License-Identifier: Apache-2.0
//! The part of the pause handling that lives on a vCPU's own thread.
//!
//! Invariant: every wait here is bounded, and a kick of the thread ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::pause::YieldOutcome;
use policy::time::Nanos;
use topology::id::VcpuIndex;
use vm_memory::{Bytes, GuestAddress};

use super::clock;
use super::deed::Then;
use super::driver::{Driver, Order, Report};
use super::helper;
use super::park::Woken;
use super::port;
use super::sampler;
use super::seat::Seat;
use super::tracepoint::{self, PauseExits, Tracepoint};
use super::yielding::{current_cpu, sched_yield, switches};
use crate::host::runqueue::OwnThreads;
use crate::kvm::vcpu::Vcpu;
use crate::layout;
use crate::memory::GuestRam;
use crate::vcpu::hook::VcpuHook;

/// What the thread of one vCPU brings to the driver.
pub struct VcpuPause {
    driver: Arc<Driver>,
    me: VcpuIndex,
    kit: Kit,
    running: bool,
    quiet_until: Nanos,
    switches: u64,
    count: Option<u32>,
    write: Option<port::PortWrite>,
    exits: Option<PauseExits>,
}

/// What is particular to how this run was asked for.
#[derive(Clone, Default)]
pub struct Kit {
    /// The port is served.
    pub port: bool,
    /// The port that takes a count is served.
    pub counted: bool,
    /// PAUSE exits are counted, and force exits if it has a period.
    pub tracepoint: Option<Tracepoint>,
    /// Where the sampler reads guest code.
    pub ram: Option<GuestRam>,
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
            running: false,
            quiet_until: Nanos(0),
            switches: 0,
            count: None,
            write: None,
            exits: None,
        }
    }

    fn seat(&self) -> &Seat {
        self.driver.seat(self.me)
    }

    /// Deals with one pause event.
    fn event(&mut self, owner: Option<topology::id::ApicId>, count: Option<u32>) {
        let seat = self.driver.seat(self.me);
        seat.events.add(1);
        let now = clock::now();
        if now.is_before(self.quiet_until) && !self.driver.anybody_parked() {
            seat.quiet.add(1);
            return;
        }
        seat.heard_ns.store(now.0, Ordering::Relaxed);
        helper::try_yielding(&self.driver);
        let switches = switches();
        let progress = count.map(|count| self.count.map_or(0, |before| count.wrapping_sub(before)));
        self.count = count.or(self.count);
        let report = Report { owner, progress, descheduled: switches != self.switches, cpu: current_cpu() };
        self.switches = switches;
        let order = self.driver.decide(self.me, &report, now);
        self.quiet_until = order.quiet_until;
        self.driver.rouse(&order);
        if !order.deed.is_nothing() {
            self.act(&order, now);
        }
    }

    fn act(&mut self, order: &Order, since: Nanos) {
        let seat = self.driver.seat(self.me);
        let (outcome, now) = match order.deed.then {
            Then::Nothing => (Some(YieldOutcome::Boosted), since),
            Then::Yield => {
                sched_yield();
                let after = switches();
                let outcome = if after == self.switches { YieldOutcome::NotBoosted } else { YieldOutcome::Boosted };
                self.switches = after;
                let now = clock::now();
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
            Then::Hypercall(_) => (Some(YieldOutcome::NotBoosted), since),
        };
        self.driver.conclude(self.me, order, outcome, now.since(since), now);
    }

    /// Serves a hold that was laid on this vCPU: blocks until it ends.
    fn held(&mut self) {
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
        if self.kit.counted {
            vcpu.share_registers();
        }
        self.seat().tid.store(tid, Ordering::Release);
        self.kit.threads.register(self.me.index(), tid);
        if let Some(tracepoint) = &self.kit.tracepoint {
            match tracepoint.open(tid) {
                Ok(exits) => self.exits = Some(exits),
                Err(error) => self.driver.note_unseen(self.me, &error),
            }
        }
    }

    fn entering(&mut self) {
        if !self.running {
            self.running = true;
            self.driver.set_running(self.me, true, current_cpu());
        }
        if tracepoint::take_forced() {
            self.seat().forced.add(1);
            self.event(None, None);
        }
        if self.seat().hold_until_ns.load(Ordering::Relaxed) != 0 {
            self.held();
        }
        let seat = self.seat();
        seat.entries.add(1);
        seat.named.store(false, Ordering::Relaxed);
    }

    fn takes(&mut self, number: u16, data: &[u8]) -> bool {
        let kit = &self.kit;
        self.write = port::decode(number, data).filter(|write| kit.port && (!write.counted || kit.counted));
        self.write.is_some()
    }

    fn pause(&mut self, vcpu: &mut Vcpu) {
        if let Some(write) = self.write.take() {
            // The guest counts in 32 bits.
            #[expect(clippy::cast_possible_truncation, reason = "the upper half of RCX is not part of the interface")]
            let count = write.counted.then(|| vcpu.shared_rcx() as u32);
            self.event(write.owner, count);
        }
    }

    fn interrupted(&mut self, vcpu: &mut Vcpu) {
        // A forced exit is dealt with on the way back in, where one that came too late for this run is dealt with too.
        if self.seat().look_due.swap(false, Ordering::Relaxed) {
            self.seat().sampled.add(1);
            if self.kit.ram.as_ref().is_some_and(|ram| executes_spin_loop(vcpu, ram)) {
                self.event(None, None);
            }
        }
    }

    fn resting(&mut self) {
        if self.running {
            self.running = false;
            self.driver.set_running(self.me, false, None);
        }
    }

    fn ended(&mut self) {
        self.resting();
        if let Some(count) = self.exits.as_mut().and_then(|exits| exits.count().ok()) {
            self.seat().pause_exits.add(count);
        }
        self.seat().tid.store(0, Ordering::Release);
    }
}

/// Whether the vCPU's instruction pointer stands in a loop around PAUSE. On the vCPU's own thread, between two runs.
fn executes_spin_loop(vcpu: &Vcpu, ram: &GuestRam) -> bool {
    let Ok(rip) = vcpu.instruction_pointer() else { return false };
    let Some(physical) = vcpu.translate(rip) else { return false };
    // Within the page: the next one may lie anywhere.
    let page = physical & !(layout::PAGE_SIZE - 1);
    let start = physical.saturating_sub(sampler::REACH as u64).max(page);
    let end = (physical + sampler::REACH as u64).min(page + layout::PAGE_SIZE);
    let mut code = [0; 2 * sampler::REACH];
    let length = usize::try_from(end - start).unwrap_or(0).min(code.len());
    let read = ram.memory().read_slice(&mut code[..length], GuestAddress(start)).is_ok();
    read && sampler::spins(&code[..length], usize::try_from(physical - start).unwrap_or(0))
}
