// SPDX-License-Identifier: Apache-2.0
//! Event, view, policy, mechanism, counters: the only place where they meet.
//!
//! One [`Driver`] a VM, shared by its vCPU threads. What a thread shows the others is in its [`Seat`], as atomics; the
//! policy's memory and view are behind one mutex that is held for the decision and never while a thread waits, yields or
//! wakes another. Invariant: whoever parks was armed under that mutex, and whoever names it looks for it under the same
//! mutex, so that no wake-up by name is lost.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use policy::pause::{
    Act, HostView, OutcomeEvent, PauseConfig, PauseEvent, PauseState, VcpuState, VcpuView, YieldOutcome,
};
use policy::time::Nanos;
use topology::id::{ApicId, HostCpu, VcpuIndex};

use super::book::Book;
use super::core::Core;
use super::deed::{Deed, Then};
use super::effective::Grant;
use super::hypercall::Hypercalls;
use super::log::DecisionLog;
use super::lookout::Lookout;
use super::order::{self, Order, Report};
use super::recent::Recent;
use super::rules::{Attached, Rules};
use super::seat::Seat;
use super::setup::DriverParts;
use super::source::{PauseSource, decides};
use super::trial::{Terms, YieldTrial};
use crate::config::{MechanismChoice, PauseMode, PausePlan};
use crate::host::runqueue::ThreadSeen;
use crate::vcpu::kick;

/// The pause-loop handling of one VM.
pub struct Driver {
    /// vCPUs by APIC id.
    by_apic_id: Vec<Option<VcpuIndex>>,
    seats: Box<[Seat]>,
    core: Mutex<Core>,
    parked: AtomicUsize,
    lookout: Lookout,
    unseen: Mutex<Option<String>>,
    trial: YieldTrial,
    hypercalls: Hypercalls,
    recent: Recent,
    attached: Mutex<Attached>,
    /// Grows with each change of what is attached.
    generation: AtomicU64,
}

impl Driver {
    /// A driver for a VM none of whose vCPUs runs yet.
    ///
    /// # Errors
    /// The decision log cannot be created.
    pub fn new(parts: DriverParts) -> io::Result<Self> {
        let vcpus = parts.apic_ids.len();
        let highest = parts.apic_ids.iter().map(|id| id.index()).max().unwrap_or(0);
        let mut by_apic_id = vec![None; highest + 1];
        for (index, id) in (0..).map(VcpuIndex).zip(&parts.apic_ids) {
            by_apic_id[id.index()] = Some(index);
        }
        let view = HostView::new(vcpus, Vec::new(), parts.usable_cpus);
        let rules = Rules::new(&parts.plan, parts.plan.policy, vcpus);
        let log = parts.plan.decision_log.map(|path| DecisionLog::create(&path, &view, &rules.config)).transpose()?;
        Ok(Self {
            by_apic_id,
            seats: std::iter::repeat_with(Seat::default).take(vcpus).collect(),
            core: Mutex::new(Core { rules, view, state: PauseState::new(vcpus), book: Book::new(vcpus), log }),
            parked: AtomicUsize::new(0),
            lookout: Lookout::new(parts.runqueues),
            unseen: Mutex::new(None),
            trial: YieldTrial::default(),
            hypercalls: parts.hypercalls,
            recent: Recent::default(),
            attached: Mutex::default(),
            generation: AtomicU64::new(0),
        })
    }

    /// Decides by `plan` from now on, with the mechanisms of `config` and `sources`, and kicks the vCPUs, so that their
    /// threads attach these and whoever is parked looks again.
    pub(super) fn adopt(
        &self,
        plan: &PausePlan,
        config: PauseConfig,
        terms: Terms,
        sources: Vec<Arc<dyn PauseSource>>,
    ) {
        let rules = Rules::new(plan, config, self.seats.len());
        self.lookout.set_wanted(rules.look(self.seats.len()));
        self.trial.set_terms(terms);
        self.lock().rules = rules;
        let attached = Attached { plan: plan.clone(), sources };
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = attached;
        self.generation.fetch_add(1, Ordering::Release);
        for seat in &self.seats {
            kick::kick(seat.tid.load(Ordering::Acquire), kick::signal());
        }
    }

    /// Grows with each [`Driver::adopt`].
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The sources that hold.
    pub(super) fn attached(&self) -> Attached {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The seats, in the order of the vCPUs.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// The latest decisions, if they are kept.
    #[must_use]
    pub fn recent(&self) -> &Recent {
        &self.recent
    }

    /// The probe of `sched_yield`.
    pub(super) fn trial(&self) -> &YieldTrial {
        &self.trial
    }

    /// The helper vCPUs.
    pub(super) fn hypercalls(&self) -> &Hypercalls {
        &self.hypercalls
    }

    /// The parameters, without a mechanism that has shown itself useless.
    fn config(&self, rules: &Rules) -> PauseConfig {
        let mut config = rules.config;
        config.mechanisms.sched_yield &= !self.trial.withdraws();
        config.mechanisms.hypercall &= self.hypercalls.are_useful();
        config
    }

    /// The seat of a vCPU of this VM.
    pub(super) fn seat(&self, vcpu: VcpuIndex) -> &Seat {
        &self.seats[vcpu.index()]
    }

    /// The vCPU of an APIC id; `None` for what a guest makes up.
    pub(super) fn vcpu_of(&self, id: ApicId) -> Option<VcpuIndex> {
        self.by_apic_id.get(id.index()).copied().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody is parked whom a report might wake.
    pub(super) fn anybody_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) > 0
    }

    /// `vcpu` runs guest code from now on, or no longer does.
    pub(super) fn set_running(&self, vcpu: VcpuIndex, runs: bool, cpu: Option<HostCpu>) {
        let mut core = self.lock();
        let state = if runs { VcpuState::Unknown } else { VcpuState::Stopped };
        core.book.put(vcpu, cpu.filter(|_| runs));
        core.view.set(vcpu, VcpuView { state, cpu, ..VcpuView::default() });
    }

    /// The PAUSE exits of a vCPU cannot be seen; the first reason is kept for the summary.
    pub(super) fn note_unseen(&self, vcpu: VcpuIndex, error: &io::Error) {
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        unseen.get_or_insert_with(|| format!("vCPU {vcpu}: {error}"));
    }

    /// Why the PAUSE exits of a vCPU could not be seen, if that happened.
    #[must_use]
    pub fn unseen(&self) -> Option<String> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How runqueues are seen by now.
    #[must_use]
    pub fn views(&self) -> Vec<Grant> {
        self.lookout.grants()
    }

    /// The vCPU threads may use so many host CPUs together from now on.
    pub(super) fn set_usable_cpus(&self, cpus: u32) {
        self.lock().view.set_usable_cpus(cpus);
    }

    /// Whether a vCPU is known to sleep, so that it is not to be kicked for a look.
    pub(super) fn sleeps(&self, seat: &Seat) -> bool {
        let position = self.seats.iter().position(|one| std::ptr::eq(one, seat));
        position.is_none_or(|position| self.lookout.sleeps(position))
    }

    /// Where the host is looked at.
    pub(super) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Decides what the thread of `source` does about its report. What concerns other threads, and the arming of the
    /// thread's own word, is done when this returns.
    pub(super) fn decide(&self, source: VcpuIndex, report: &Report, now: Nanos) -> Order {
        let owner = report.owner.and_then(|id| self.vcpu_of(id));
        let looks = self.lookout.look(&self.seats, source, owner, report, now);
        let mut core = self.lock();
        self.take_in(&mut core, source, report, owner, &looks);
        let named_since_entry = self.seat(source).named.load(Ordering::Relaxed);
        if let Some(owner) = owner.filter(|owner| *owner != source) {
            self.seat(owner).named.store(true, Ordering::Relaxed);
        }
        let alone = core.view.get(source).and_then(|view| view.runqueue) == Some(1);
        let Rules { mode, mechanism, bounds, .. } = core.rules;
        let config = self.config(&core.rules);
        let mut spins_on = false;
        let (deed, quiet_until) = if !decides(mode) {
            // Switched off while the report was on its way.
            (Deed::NOTHING, now)
        } else if mechanism == MechanismChoice::Auto {
            let event = PauseEvent {
                source,
                owner,
                interrupted: None,
                progress: report.progress,
                named_since_entry,
                descheduled: report.descheduled,
            };
            let decision = core.decide(&event, &config, now);
            self.seat(source).count_decision(decision.act);
            self.recent.decided(source, owner, &decision, now);
            spins_on = decision.act == Act::Spin;
            (Deed::of(decision.act), decision.quiet_until)
        } else {
            let deed = Deed::fixed(mechanism, owner, named_since_entry, bounds, now);
            self.recent.fixed(source, owner, &deed, now);
            (deed, now)
        };
        let patience = order::patience(quiet_until.since(now), config.backoff_base_ns);
        if mode != PauseMode::Act {
            return Order { deed: Deed::NOTHING, quiet_until, patience, spins_on, rouse: None, alone, decided: false };
        }
        self.prepare(&mut core, source, &deed);
        let rouse = deed.wake.filter(|target| *target != source && self.release(&mut core, *target));
        Order { deed, quiet_until, patience, spins_on, rouse, alone, decided: mechanism == MechanismChoice::Auto }
    }

    /// Writes what is known now into the view.
    fn take_in(
        &self,
        core: &mut Core,
        source: VcpuIndex,
        report: &Report,
        owner: Option<VcpuIndex>,
        looks: &[(VcpuIndex, ThreadSeen)],
    ) {
        core.book.put(source, report.cpu);
        let runqueue = core.book.runqueue(source).map(|tasks| if report.crowded { tasks.max(2) } else { tasks });
        core.view.set(
            source,
            VcpuView { state: VcpuState::Running, spinning: true, cpu: report.cpu, runqueue, ..VcpuView::default() },
        );
        for (vcpu, seen) in looks {
            // Whoever is held wants a CPU, though its thread sleeps.
            let held = self.seat(*vcpu).held.load(Ordering::Relaxed);
            let seen = if held { ThreadSeen { runnable: Some(true), on_cpu: Some(false), ..*seen } } else { *seen };
            core.take_look(*vcpu, seen);
        }
        match owner {
            Some(owner) if owner != source => core.refresh(owner, Some(false)),
            Some(_) => {}
            None => (0..).map(VcpuIndex).take(self.seats.len()).for_each(|vcpu| {
                if vcpu != source {
                    core.refresh(vcpu, None);
                }
            }),
        }
        looks.iter().for_each(|(vcpu, seen)| core.take_exact(*vcpu, *seen));
    }

    /// Arms the source's own word if it is to park.
    fn prepare(&self, core: &mut Core, source: VcpuIndex, deed: &Deed) {
        if let Then::Park(_) = deed.then {
            self.seat(source).parker.arm();
            core.book.put(source, None);
            core.view.update(source, |view| view.state = VcpuState::Parked);
            self.parked.store(core.view.parked_count(), Ordering::Relaxed);
        }
    }

    /// Marks `target` as woken; true if it has to be roused.
    fn release(&self, core: &mut Core, target: VcpuIndex) -> bool {
        if !self.seat(target).parker.release() {
            return false;
        }
        core.unpark(target);
        self.parked.store(core.view.parked_count(), Ordering::Relaxed);
        true
    }

    /// Rouses whoever was released. After the lock was let go.
    pub(super) fn rouse(&self, order: &Order) {
        if let Some(target) = order.rouse {
            self.seat(target).parker.rouse();
        }
    }

    /// Takes in how an action ended; `outcome` is `None` for a park that a kick ended, which says nothing.
    pub(super) fn conclude(
        &self,
        source: VcpuIndex,
        order: &Order,
        outcome: Option<YieldOutcome>,
        took_ns: u64,
        now: Nanos,
    ) {
        let parked = matches!(order.deed.then, Then::Park(_));
        let outcome = match outcome {
            Some(YieldOutcome::NotBoosted) if order.alone && !parked => Some(YieldOutcome::NobodyWaiting),
            outcome => outcome,
        };
        if let Some(outcome) = outcome {
            self.seat(source).count(outcome);
        }
        let mut core = self.lock();
        if parked {
            core.unpark(source);
            self.parked.store(core.view.parked_count(), Ordering::Relaxed);
        }
        if let (Some(outcome), true) = (outcome, order.decided) {
            let event = OutcomeEvent { source, target: order.deed.target, outcome, parked, donated_ns: took_ns };
            let config = self.config(&core.rules);
            core.outcome(&event, &config, now);
            for vcpu in [Some(source), event.target].into_iter().flatten() {
                self.seat(vcpu).book(core.state.ledger(vcpu));
            }
        }
        self.recent.done(source, outcome);
    }

    /// What the policy has counted of a vCPU.
    #[cfg(test)]
    pub(super) fn counters(&self, vcpu: VcpuIndex) -> policy::pause::Counters {
        self.lock().state.counters(vcpu).copied().unwrap_or_default()
    }

    /// Ends the decision log; later decisions are not in it.
    ///
    /// # Errors
    /// The log could not be written to its end.
    pub fn finish_log(&self) -> io::Result<()> {
        let log = self.lock().log.take();
        log.map_or(Ok(()), DecisionLog::finish)
    }
}
