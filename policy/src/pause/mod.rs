// SPDX-License-Identifier: Apache-2.0
//! What to do about a vCPU that spins.

mod bits;
mod choose;
mod config;
mod decision;
mod state;
mod tactic;
mod view;

use topology::id::VcpuIndex;

pub use self::config::{ConfigError, Mechanisms, PauseConfig};
pub use self::decision::{Act, Class, Decision, How, PauseEvent, Reason, YieldOutcome};
pub use self::state::{Counters, Ledger, OutcomeEvent, PauseState};
pub use self::view::{HostView, Locality, VcpuState, VcpuView};

use self::choose::{Scan, both_alone};
use self::tactic::{Allowed, Tactic};
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
    let quiet_until = state.conclude(event.source, act, config, now);
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
        let named_meanwhile = state.named.contains(source.index()) && self.event.progress == Some(0);
        state.named.assign(source.index(), false);
        let hint = self.hint();
        let tactic = self.learn(hint.is_some(), state);
        if self.view.vcpu_count() < 2 {
            return Err(Reason::Alone);
        }
        if self.event.owner == Some(source) {
            return Err(Reason::NamedSelf);
        }
        if let Some((target, class)) = hint {
            let parked = self.is(target, VcpuState::Parked);
            state.named.assign(target.index(), !parked);
            // A parked owner is woken whatever else holds: nobody but this event will do it.
            if parked {
                let tactic = if named_meanwhile { Tactic::Spin } else { tactic };
                return Ok((self.execute(tactic, target), Some(class)));
            }
        }
        if named_meanwhile {
            return Err(Reason::NamedMeanwhile);
        }
        if state.vcpus[source.index()].is_backing_off(self.now) {
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
    fn learn(&self, named: bool, state: &mut PauseState) -> Tactic {
        let changed = self.event.owner.is_some() && self.event.owner != state.last_owner;
        if self.event.owner.is_some() {
            state.last_owner = self.event.owner;
        }
        // Without a count from the guest, an owner other than the last one named says that the lock moved on.
        let gained = self.event.progress.unwrap_or(u32::from(changed));
        let cpus = self.view.usable_cpus();
        let learner = &mut state.learners[usize::from(named) * 2 + usize::from(cpus > 1)];
        learner.observe(gained, Allowed::new(self.config, cpus), self.config, self.now)
    }

    fn target(&self, hint: Option<(VcpuIndex, Class)>, tactic: Tactic, state: &mut PauseState) -> Verdict {
        let (target, class) = match hint {
            Some((target, _)) if both_alone(self.view, self.event.source, target) => return Err(Reason::NobodyWaiting),
            Some((target, class)) if self.view.get(target).is_some_and(VcpuView::wants_cpu) => (target, class),
            Some((target, _)) if !self.crowded && self.is(target, VcpuState::Running) => {
                return Err(Reason::OwnerRunning);
            }
            Some(_) if !self.crowded => return Err(Reason::OwnerIdle),
            _ => match self.guess(state) {
                Ok(found) => found,
                Err(Reason::NoCandidate) if self.crowded && tactic == Tactic::Park => {
                    return Ok((Act::Park { until: self.now.after(self.config.park_unnamed_ns) }, None));
                }
                Err(reason) => return Err(reason),
            },
        };
        Ok((self.execute(tactic, target), Some(class)))
    }

    fn guess(&self, state: &mut PauseState) -> Result<(VcpuIndex, Class), Reason> {
        let balance = state.vcpus[self.event.source.index()].ledger.balance_at(self.config, self.now);
        if balance <= -i64::try_from(self.config.credit_ns).unwrap_or(i64::MAX) {
            return Err(Reason::DonatedEnough);
        }
        Scan::new(self.view, state, self.config, self.event.source, self.now).run()
    }

    /// Turns a tactic and a target into the one sequence of system calls that does it.
    fn execute(&self, tactic: Tactic, target: VcpuIndex) -> Act {
        let parked = self.is(target, VcpuState::Parked);
        let mechanisms = self.config.mechanisms;
        let park = match tactic {
            Tactic::Park => true,
            Tactic::ParkLocal => self.shares_cpu(target),
            Tactic::Spin | Tactic::Yield => false,
        };
        let how = match tactic {
            Tactic::Spin if parked => How::Wake,
            Tactic::Spin => return Act::Spin,
            _ if park => How::WakeAndPark { until: self.now.after(self.park_ns()) },
            _ if parked => How::WakeThenYield,
            _ if mechanisms.hypercall => How::Hypercall,
            _ => How::SchedYield,
        };
        Act::YieldTo { target, how }
    }

    fn park_ns(&self) -> u64 {
        if self.event.owner.is_some() { self.config.park_named_ns } else { self.config.park_unnamed_ns }
    }

    fn shares_cpu(&self, target: VcpuIndex) -> bool {
        let cpu = |vcpu| self.view.get(vcpu).and_then(|v| v.cpu);
        cpu(target).is_some_and(|at| cpu(self.event.source) == Some(at))
    }
}
