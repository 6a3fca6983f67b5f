// SPDX-License-Identifier: Apache-2.0
//! What the policy remembers between decisions, and what it counts.
//!
//! Invariant: everything remembered was computed from arguments of [`decide`](super::decide) and
//! [`PauseState::outcome`]; two states that saw the same calls are equal.

use topology::id::VcpuIndex;

use super::bits::Bits;
use super::config::PauseConfig;
use super::decision::{Act, Decision, How, Reason, YieldOutcome};
use super::tactic::Learner;
use crate::time::Nanos;

/// Counts of one vCPU's pause events. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pause events seen.
    pub events: u64,
    /// Decisions that gave the CPU away or woke somebody.
    pub yields: u64,
    /// Decisions to block without a target.
    pub parks: u64,
    /// Decisions to spin because acting was found not to pay.
    pub spins: u64,
    /// Outcomes by [`YieldOutcome::index`].
    pub outcomes: [u64; YieldOutcome::ALL.len()],
    /// Bail-outs by [`Reason::index`].
    pub bailed: [u64; Reason::ALL.len()],
}

/// What one vCPU gave to others and got from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// CPU time given away, in nanoseconds.
    pub donated_ns: u64,
    /// CPU time received from spinners, in nanoseconds.
    pub received_ns: u64,
    /// Received less donated, halved every window and bounded by the credit.
    pub(crate) balance_ns: i64,
    settled_at: Nanos,
}

impl Ledger {
    /// The balance at `now`, in nanoseconds; positive if this vCPU received more than it gave.
    pub(crate) fn balance_at(&self, config: &PauseConfig, now: Nanos) -> i64 {
        let windows = now.since(self.settled_at) / config.credit_window_ns.max(1);
        // Division and not a shift: it takes a debt to zero as well as a credit.
        if windows >= 63 { 0 } else { self.balance_ns / (1 << windows) }
    }

    fn book(&mut self, change_ns: i64, config: &PauseConfig, now: Nanos) {
        let bound = i64::try_from(config.credit_ns).unwrap_or(i64::MAX);
        let windows = now.since(self.settled_at) / config.credit_window_ns.max(1);
        self.balance_ns = self.balance_at(config, now).saturating_add(change_ns).clamp(-bound, bound);
        if windows > 0 {
            self.settled_at = now;
        }
    }
}

/// How a yield or park ended, as the mechanism layer reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeEvent {
    /// Who gave.
    pub source: VcpuIndex,
    /// Who was to get; `None` for a park without a target.
    pub target: Option<VcpuIndex>,
    /// What came of it.
    pub outcome: YieldOutcome,
    /// The source was blocked, and the outcome is `Boosted` if it was woken by name and did not run into the bound.
    pub parked: bool,
    /// How long the source went without its CPU for it, in nanoseconds.
    pub donated_ns: u64,
}

/// The memory of the policy about one vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spinner {
    /// Its last park on a named owner ended by its bound; what it reports next says whether its turn had come.
    pub(crate) park_ran_out: bool,
    /// When it first reported the wait that it is in; `None` once somebody named it as the one who is waited for.
    pub(crate) waits_since: Option<Nanos>,
    /// When it last told of its progress.
    told_at: Option<Nanos>,
    pub(crate) window_ns: u64,
    pub(crate) quiet_until: Option<Nanos>,
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
}

/// The memory of the policy about one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseState {
    pub(crate) vcpus: Vec<Spinner>,
    /// Spinners that may be chosen at the next look; the kernel's `dy_eligible`.
    pub(crate) eligible: Bits,
    /// Mean time from a park to the wake-up by name.
    pub(crate) usual_park_ns: u64,
    /// Index of the vCPU that was last boosted; the scan starts behind it. The index, never a loop counter
    /// (kernel bug 32bd348be3fa).
    pub(crate) last_boosted: Option<VcpuIndex>,
    /// How often bounds of parks are halved, times [`SHORT_PARKS`]: parks on a named owner ran out after their turn had come.
    pub(crate) tightened: u32,
    pub(crate) last_turn: Option<VcpuIndex>,
    pub(crate) guesses: u32,
    pub(crate) last_owner: Option<VcpuIndex>,
    /// When a report last named an owner without telling of progress.
    owner_told_at: Option<Nanos>,
    /// By situation: one usable CPU, or several.
    pub(crate) learners: [Learner; 2],
}

impl PauseState {
    /// The memory for a VM of `vcpus` vCPUs about which nothing is known.
    #[must_use]
    pub fn new(vcpus: usize) -> Self {
        Self {
            vcpus: vec![Spinner::default(); vcpus],
            eligible: Bits::new(vcpus),
            usual_park_ns: 0,
            last_boosted: None,
            tightened: 0,
            last_turn: None,
            guesses: 0,
            last_owner: None,
            owner_told_at: None,
            learners: Default::default(),
        }
    }

    /// Takes in how an action ended. Vcpus that do not exist are ignored.
    pub fn outcome(&mut self, event: &OutcomeEvent, config: &PauseConfig, now: Nanos) {
        let Some(source) = self.vcpus.get_mut(event.source.index()) else { return };
        source.counters.outcomes[event.outcome.index()] += 1;
        if event.outcome != YieldOutcome::Boosted {
            source.park_ran_out = event.parked && event.target.is_some();
            source.grow_window(config, now);
            return;
        }
        source.reset_window();
        if event.parked {
            self.usual_park_ns =
                self.usual_park_ns - self.usual_park_ns / 8 + event.donated_ns.min(config.park_max_ns) / 8;
        }
        let Some(target) = event.target.filter(|t| t.index() < self.vcpus.len() && *t != event.source) else { return };
        self.last_boosted = Some(target);
        let change = i64::try_from(event.donated_ns).unwrap_or(i64::MAX);
        let giver = &mut self.vcpus[event.source.index()].ledger;
        giver.donated_ns = giver.donated_ns.saturating_add(event.donated_ns);
        giver.book(-change, config, now);
        let taker = &mut self.vcpus[target.index()].ledger;
        taker.received_ns = taker.received_ns.saturating_add(event.donated_ns);
        taker.book(change, config, now);
    }

    /// The counters of `vcpu`; `None` if there is no such vCPU.
    #[must_use]
    pub fn counters(&self, vcpu: VcpuIndex) -> Option<&Counters> {
        self.vcpus.get(vcpu.index()).map(|v| &v.counters)
    }

    /// What `vcpu` gave and got; `None` if there is no such vCPU.
    #[must_use]
    pub fn ledger(&self, vcpu: VcpuIndex) -> Option<&Ledger> {
        self.vcpus.get(vcpu.index()).map(|v| &v.ledger)
    }

    /// Where the next scan starts: behind the vCPU boosted last.
    pub(crate) fn scan_start(&self) -> usize {
        after(self.last_boosted, self.vcpus.len())
    }

    /// Where the next scan for a turn starts.
    pub(crate) fn turn_start(&self) -> usize {
        after(self.last_turn, self.vcpus.len())
    }

    /// Books `act` of `source` and closes the back-off window behind a decision that helped nobody.
    ///
    /// Returns until when the source may stay silent: the window, but not while another vCPU is parked (`others_parked`),
    /// for only a report wakes it.
    pub(crate) fn conclude(
        &mut self,
        source: VcpuIndex,
        act: Act,
        others_parked: bool,
        config: &PauseConfig,
        now: Nanos,
    ) -> Nanos {
        let Some(spinner) = self.vcpus.get_mut(source.index()) else { return now };
        let counters = &mut spinner.counters;
        match act {
            Act::YieldTo { .. } | Act::Yield => counters.yields += 1,
            Act::Park { .. } => counters.parks += 1,
            Act::Spin => counters.spins += 1,
            Act::Bail(reason) => counters.bailed[reason.index()] += 1,
        }
        if let Act::Bail(reason) = act
            && reason.is_useless_to_repeat()
        {
            spinner.grow_window(config, now);
        }
        match act {
            Act::Bail(_) if !others_parked => spinner.quiet_until.map_or(now, |until| until.later(now)),
            _ => now,
        }
    }
}

/// Parks that ran out before their turn, for each halving of the bound that is taken back: a turn that was slept through
/// stalls them all, a park that was too short costs one wake-up.
const SHORT_PARKS: u32 = 16;

impl PauseState {
    /// How often the bound of a park is halved.
    pub(crate) const fn halvings(&self) -> u32 {
        self.tightened.div_ceil(SHORT_PARKS)
    }

    /// Learns from the report after a park that ran out: with progress, the turn had come and nobody was left to say so,
    /// and the next bounds are shorter, by `most` halvings at most; without, the bound was too short already.
    pub(crate) fn learn_bound(&mut self, source: VcpuIndex, progress: Option<u32>, most: u32) {
        let Some(spinner) = self.vcpus.get_mut(source.index()) else { return };
        if !std::mem::take(&mut spinner.park_ran_out) {
            return;
        }
        match progress {
            Some(0) => self.tightened = self.tightened.saturating_sub(1),
            Some(_) => self.tightened = (self.tightened + SHORT_PARKS).min(most * SHORT_PARKS),
            None => {}
        }
    }
}

impl PauseState {
    /// Notes that `source` waits, in a new wait if it has made `progress` since its last report, and that `owner`, who is
    /// waited for, does not.
    pub(crate) fn note_wait(&mut self, source: VcpuIndex, owner: Option<VcpuIndex>, progress: Option<u32>, now: Nanos) {
        if let Some(spinner) = self.vcpus.get_mut(source.index())
            && (spinner.waits_since.is_none() || progress.is_some_and(|made| made > 0))
        {
            spinner.waits_since = Some(now);
        }
        if let Some(owner) = owner.filter(|owner| *owner != source).and_then(|owner| self.vcpus.get_mut(owner.index()))
        {
            owner.waits_since = None;
        }
    }

    /// Since when the report of `source` speaks of progress: since its own last one if it `counts`, and since anybody's if all
    /// that is known of progress is who was named. `None` for the first.
    pub(crate) fn told(&mut self, source: VcpuIndex, counts: bool, now: Nanos) -> Option<Nanos> {
        let told_at = if counts { &mut self.vcpus.get_mut(source.index())?.told_at } else { &mut self.owner_told_at };
        told_at.replace(now)
    }

    /// Whether `source` is first in line as far as reports tell: no other vCPU has waited for longer.
    pub(crate) fn waits_longest(&self, source: VcpuIndex) -> bool {
        let Some(mine) = self.vcpus.get(source.index()).and_then(|one| one.waits_since) else { return false };
        !self.vcpus.iter().any(|one| one.waits_since.is_some_and(|since| since.is_before(mine)))
    }
}

impl Spinner {
    /// Whether the back-off window is still closed at `now`.
    pub(crate) fn is_backing_off(&self, now: Nanos) -> bool {
        self.quiet_until.is_some_and(|until| now.is_before(until))
    }

    /// Acting was useless: look away for a window, and for twice as long next time.
    pub(crate) fn grow_window(&mut self, config: &PauseConfig, now: Nanos) {
        let doubled = self.window_ns.saturating_mul(2);
        self.window_ns = doubled.clamp(config.backoff_base_ns, config.backoff_max_ns.max(config.backoff_base_ns));
        self.quiet_until = Some(now.after(self.window_ns));
    }

    /// Acting helped, or the host took the CPU: the next event is looked at again.
    pub(crate) fn reset_window(&mut self) {
        self.window_ns = 0;
        self.quiet_until = None;
    }
}

fn after(vcpu: Option<VcpuIndex>, len: usize) -> usize {
    vcpu.map_or(0, |v| (v.index() + 1) % len.max(1))
}

/// What became of a decision, for tests and reports that want one line of it.
impl Decision {
    /// The vCPU the decision favours, if any.
    #[must_use]
    pub const fn target(&self) -> Option<VcpuIndex> {
        match self.act {
            Act::YieldTo { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Until when the source blocks, if it does.
    #[must_use]
    pub const fn parks_until(&self) -> Option<Nanos> {
        match self.act {
            Act::Park { until } | Act::YieldTo { how: How::WakeAndPark { until }, .. } => Some(until),
            _ => None,
        }
    }
}
