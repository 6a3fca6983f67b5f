// SPDX-License-Identifier: Apache-2.0
//! What to do about a vCPU that spins: whether anybody can be helped, who, and by which means.
//!
//! # Unit of account
//! One *pause event*: one vCPU says that it spins, and perhaps for whom. One event, one [`Decision`], one counter.
//!
//! # Problem
//! A spinner on an overcommitted host burns the CPU that the vCPU it waits for may need. Giving the CPU away is right when
//! that vCPU waits for one, and ruinous when it does not: with a CPU for each vCPU the best mechanism of the crowded host
//! costs a factor of 6,000 (design 5.4). The spinner cannot know which; the host half knows; the kernel guesses.
//!
//! # Terms
//! - *source*: the vCPU that spins. *Owner*: whom the guest named. *Target*: whom the decision favours.
//! - *candidate*: wants a CPU and is not known to have one ([`VcpuView::wants_cpu`]).
//! - *alone*: the only runnable task of its runqueue. Unknown is not alone.
//! - *crowded*: the source's runqueue is known to hold another runnable task.
//! - *tactic*: spin, yield or park; what is done once somebody can be helped. *Progress*: how often the source got what it
//!   waited for, as the guest counts it; without a count, a change of the owner named.
//! - *donated*, *received*: CPU time given by a spinner to its target, in both ledgers.
//!
//! # Algorithm
//! 1. Book the progress; a descheduled source forgets its back-off.
//! 2. A named owner that is parked is woken, whatever follows.
//! 3. Bail out: source unknown, single vCPU, source named itself, source named while its report was on the way, back-off
//!    window closed (unless crowded with a named owner).
//! 4. Named owner: source and owner both alone, bail out; owner a candidate, take it; owner running or idle, bail out, or
//!    step aside when crowded, unless the owner runs and the source is first in line.
//! 5. Otherwise scan the candidates in class order ([`Class`]) within the scan budget: spinners every other look, those
//!    who have had their credit not at all; three lone targets end it. Inside a class the same CPU, cluster, LLC, node,
//!    then the longest wait, then round robin behind the vCPU boosted last. Every eighth guess goes to the next candidate
//!    in turn.
//! 6. The leading tactic and the granted mechanisms turn the target into an [`Act`]. Tactics race by measured progress.
//! 7. A bail-out that would repeat closes a back-off window, twice as long each time, until an action helps or the host
//!    takes the CPU. The decision says how long the source may be silent.
//!
//! # Properties
//! Each is a test of the same name in `tests/pause_properties.rs`.
//! - never itself; never a running or idle target; only granted mechanisms; every park is bounded
//! - both runqueues at one bail out; three lone targets end the scan; length one on the source alone is not enough
//! - after a boost of v the next scan starts at v plus 1
//! - a spinner is considered at least every other look; spinners do not cascade
//! - nobody starves; who gave its credit away guesses no more until it is repaid
//! - the back off window doubles while useless and resets when descheduled
//! - a parked owner is woken even inside the back off window
//! - who was named meanwhile looks again and does not sleep
//! - what cannot be measured is not yielded without direction on several CPUs
//! - a turn slept through shortens the next parks, and parks too short lengthen them again
//! - who waits for a running owner steps aside for those who want its CPU
//! - who is first in line for a running owner stays for a slice
//! - nobody waiting is not a boost
//! - same input same output; every event of a vCPU is counted once

mod bits;
mod choose;
mod config;
mod decision;
pub mod log;
mod state;
mod tactic;
mod view;

use topology::id::VcpuIndex;

pub use self::config::{ConfigError, Mechanisms, PauseConfig};
pub use self::decision::{Act, Class, Decision, How, PauseEvent, Reason, YieldOutcome};
pub use self::state::{Counters, Ledger, OutcomeEvent, PauseState};
pub use self::view::{HostView, Locality, VcpuState, VcpuView};

use self::choose::{Scan, both_alone};
use self::tactic::{Allowed, Gain, Tactic};
use crate::time::Nanos;

/// Decides about one pause event. Pure: the same arguments and the same state give the same decision and state.
///
/// `state` must have been made for the view's number of vCPUs. No allocation, no panic, any event is safe.
pub fn decide(
    event: &PauseEvent,
    view: &HostView,
    state: &mut PauseState,
    config: &PauseConfig,
    now: Nanos,
) -> Decision {
    let crowded = view.get(event.source).and_then(|s| s.runqueue).is_some_and(|n| n > 1);
    let case = Case { event, view, config, now, crowded };
    let (act, class) = case.judge(state).unwrap_or_else(|reason| (Act::Bail(reason), None));
    let quiet_until = state.conclude(event.source, act, view.parked_count() > 0, config, now);
    Decision { act, class, quiet_until }
}

/// A decision in the making: the arguments of [`decide`] and what was derived from them once.
struct Case<'a> {
    event: &'a PauseEvent,
    view: &'a HostView,
    config: &'a PauseConfig,
    now: Nanos,
    /// Others are known to want the source's CPU.
    crowded: bool,
}

type Verdict = Result<(Act, Option<Class>), Reason>;

impl Case<'_> {
    fn judge(&self, state: &mut PauseState) -> Verdict {
        let source = self.event.source;
        let spinner = state.vcpus.get_mut(source.index()).ok_or(Reason::NoSuchSource)?;
        spinner.counters.events += 1;
        if self.event.descheduled {
            spinner.reset_window();
        }
        if self.view.get(source).is_none_or(|s| s.state == VcpuState::Stopped) {
            return Err(Reason::NoSuchSource);
        }
        state.learn_bound(source, self.event.progress, self.config.park_halvings);
        let hint = self.hint();
        state.note_wait(source, hint.map(|(owner, _)| owner), self.event.progress, self.now);
        let tactic = self.learn(state);
        let tactic = if hint.is_none() && self.event.progress.is_none() { self.blind(tactic) } else { tactic };
        if self.view.vcpu_count() < 2 {
            return Err(Reason::Alone);
        }
        if self.event.owner == Some(source) {
            return Err(Reason::NamedSelf);
        }
        if let Some((target, class)) = hint {
            // A parked owner is woken whatever else holds: nobody but this event will do it.
            if self.is(target, VcpuState::Parked) {
                return Ok((self.execute(tactic, target, state), Some(class)));
            }
        }
        if self.event.named_since_entry && self.event.progress == Some(0) {
            return Err(Reason::NamedMeanwhile);
        }
        // Where others wait for this CPU and the owner is known, looking away costs more than looking.
        let pressing = self.crowded && hint.is_some();
        if !pressing && state.vcpus[source.index()].is_backing_off(self.now) {
            return Err(Reason::BackingOff);
        }
        self.target(hint, tactic, state)
    }

    /// Whom the guest named, if such a vCPU exists and is not the source.
    fn hint(&self) -> Option<(VcpuIndex, Class)> {
        let valid = |vcpu: &VcpuIndex| *vcpu != self.event.source && self.view.get(*vcpu).is_some();
        let owner = self.event.owner.filter(valid).map(|v| (v, Class::NamedOwner));
        owner.or_else(|| self.event.interrupted.filter(valid).map(|v| (v, Class::Interrupted)))
    }

    fn is(&self, vcpu: VcpuIndex, state: VcpuState) -> bool {
        self.view.get(vcpu).is_some_and(|v| v.state == state)
    }

    /// Feeds the progress since the last event to the race of tactics and says which one leads.
    fn learn(&self, state: &mut PauseState) -> Tactic {
        let changed = self.event.owner.is_some() && self.event.owner != state.last_owner;
        if self.event.owner.is_some() {
            state.last_owner = self.event.owner;
        }
        // Without a count from the guest, an owner other than the last one named says that the lock moved on. Without
        // either nothing is known of progress.
        let told = state.told(self.event.source, self.event.progress.is_some(), self.now);
        let count = self.event.progress.or(self.event.owner.map(|_| u32::from(changed)));
        let gained = count.zip(told).map(|(count, since)| Gain { count, since });
        let cpus = self.view.usable_cpus();
        let learner = &mut state.learners[usize::from(cpus > 1)];
        learner.observe(gained, Allowed::new(self.config, self.view.vcpu_count(), cpus), self.config, self.now)
    }

    /// The tactic where neither an owner nor progress is known, so that what it brings cannot be measured. On one CPU nobody
    /// else runs while the source spins, and whatever lets go of it is right. On several a yield that only the scheduler
    /// directs breaks the order in which a fair lock is passed on; parking gains while CPUs are shared by few, and with many
    /// the order is lost again (docs/simulator.md, adversaries).
    fn blind(&self, tactic: Tactic) -> Tactic {
        let (vcpus, cpus) = (self.view.vcpu_count(), self.view.usable_cpus() as usize);
        let mechanisms = self.config.mechanisms;
        let few = self.config.blind_vcpus_per_cpu as usize;
        let shared_by_few = vcpus > cpus && vcpus < cpus.saturating_mul(few);
        match tactic {
            _ if few == 0 => tactic,
            Tactic::Yield if cpus == 1 || mechanisms.hypercall => Tactic::Yield,
            Tactic::Park if cpus == 1 => Tactic::Park,
            Tactic::Yield | Tactic::Park if shared_by_few && mechanisms.park => Tactic::Park,
            Tactic::Spin | Tactic::Yield | Tactic::Park | Tactic::Help => Tactic::Spin,
        }
    }

    fn target(&self, hint: Option<(VcpuIndex, Class)>, tactic: Tactic, state: &mut PauseState) -> Verdict {
        let (target, class) = match hint {
            Some((target, _)) if both_alone(self.view, self.event.source, target) => return Err(Reason::NobodyWaiting),
            Some((target, class)) if self.view.get(target).is_some_and(VcpuView::wants_cpu) => (target, class),
            Some((target, _)) if !self.crowded && self.is(target, VcpuState::Running) => {
                return Err(Reason::OwnerRunning);
            }
            Some(_) if !self.crowded => return Err(Reason::OwnerIdle),
            Some((target, _)) if self.is_first_in_line(target, state) => return Err(Reason::OwnerRunning),
            Some(_) => match self.step_aside(tactic, state) {
                Some(act) => return Ok((act, None)),
                None => self.guess(state)?,
            },
            None => match self.guess(state) {
                Ok(found) => found,
                Err(Reason::NoCandidate) if self.crowded && tactic == Tactic::Park && !self.event.named_since_entry => {
                    return Ok((Act::Park { until: self.now.after(self.config.park_unnamed_ns) }, None));
                }
                Err(reason) => return Err(reason),
            },
        };
        Ok((self.execute(tactic, target, state), Some(class)))
    }

    /// The owner runs and the source is next: who is not there when its turn comes keeps all that wait behind it, so it stays
    /// where it is, as the head of a queued spinlock does (kernel/locking/qspinlock_paravirt.h), for a while.
    fn is_first_in_line(&self, owner: VcpuIndex, state: &PauseState) -> bool {
        let source = self.event.source;
        let waited = state.vcpus[source.index()].waits_since.map_or(0, |since| self.now.since(since));
        self.is(owner, VcpuState::Running) && waited < self.config.first_in_line_ns && state.waits_longest(source)
    }

    /// The owner cannot be helped, and others want the source's CPU: whoever is next has it, for the source gets nowhere
    /// before the owner does. No scan: neither mechanism chooses. `None` where the kernel yields to a target.
    fn step_aside(&self, tactic: Tactic, state: &PauseState) -> Option<Act> {
        let mechanisms = self.config.mechanisms;
        match tactic {
            Tactic::Spin | Tactic::Help => Some(Act::Spin),
            Tactic::Park if !self.event.named_since_entry => {
                Some(Act::Park { until: self.now.after(self.park_ns(state)) })
            }
            Tactic::Park | Tactic::Yield => (mechanisms.sched_yield && !mechanisms.hypercall).then_some(Act::Yield),
        }
    }

    fn guess(&self, state: &mut PauseState) -> Result<(VcpuIndex, Class), Reason> {
        let balance = state.vcpus[self.event.source.index()].ledger.balance_at(self.config, self.now);
        if balance <= -i64::try_from(self.config.credit_ns).unwrap_or(i64::MAX) {
            return Err(Reason::DonatedEnough);
        }
        Scan::new(self.view, state, self.config, self.event.source, self.now).run()
    }

    /// Turns a tactic and a target into the one sequence of system calls that does it.
    fn execute(&self, tactic: Tactic, target: VcpuIndex, state: &PauseState) -> Act {
        let parked = self.is(target, VcpuState::Parked);
        let mechanisms = self.config.mechanisms;
        let park = match tactic {
            // Its own turn may have come while its report was on the way: to sleep through it would stall them all.
            _ if self.event.named_since_entry => false,
            Tactic::Park => true,
            Tactic::Help => !mechanisms.sched_yield && !mechanisms.hypercall && mechanisms.park,
            Tactic::Spin | Tactic::Yield => false,
        };
        let how = match tactic {
            Tactic::Spin if parked => How::Wake,
            Tactic::Spin => return Act::Spin,
            _ if park => How::WakeAndPark { until: self.now.after(self.park_ns(state)) },
            _ if parked && mechanisms.sched_yield => How::WakeThenYield,
            _ if parked => How::Wake,
            _ if mechanisms.hypercall => How::Hypercall,
            _ if mechanisms.sched_yield => How::SchedYield,
            _ => return Act::Spin,
        };
        Act::YieldTo { target, how }
    }

    /// Longest park: when an owner was named, long enough that a wake-up by name is missed by few (four times the usual
    /// wait, which grows with the number of vCPUs that have their turn before), and bounded all the same.
    fn park_ns(&self, state: &PauseState) -> u64 {
        let config = self.config;
        match self.event.owner {
            None => config.park_unnamed_ns,
            Some(_) => {
                let turn = config.park_turn_ns.saturating_mul(self.view.vcpu_count() as u64);
                let usual = state.usual_park_ns.saturating_mul(4);
                let bound = turn.max(usual).clamp(config.park_named_ns, config.park_max_ns);
                (bound >> state.halvings()).max(config.park_unnamed_ns)
            }
        }
    }
}
