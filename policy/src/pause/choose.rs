// SPDX-License-Identifier: Apache-2.0
//! Whom to favour when nobody was named: the scan over the candidates, in class order and inside a class by locality.
//!
//! Invariant: what it returns is never the source, never a vCPU known to run, never one halted with nothing pending.

use topology::id::VcpuIndex;

use super::bits::visit_from;
use super::config::PauseConfig;
use super::decision::{Class, Reason};
use super::state::PauseState;
use super::view::HostView;
use crate::time::Nanos;

/// The classes of the scan, best first.
const SCAN_ORDER: [Class; 5] =
    [Class::PendingInterrupt, Class::PreemptedKernel, Class::Preempted, Class::Runnable, Class::Spinning];

/// Candidates to look at: all but the source when the cache's CPUs are idle, fewer as they fill up, never none.
///
/// SIS_UTIL's curve (kernel commit 70fb5ccf2ebb): y = 1024 - (x * pct / 100)^2 / 1024 of `others`, plus one. The kernel
/// stops at zero; the cliff there cost a third of tbench's throughput (seed cluster-scan), so one always remains.
pub(crate) fn scan_budget(others: usize, utilisation: Option<u32>, config: &PauseConfig) -> usize {
    let limit = config.scan_limit as usize;
    let Some(x) = utilisation else { return others.min(limit) };
    let scaled = u64::from(x.min(1024)) * u64::from(config.scan_imbalance_pct) / 100;
    let share = 1024_u64.saturating_sub(scaled * scaled / 1024);
    let budget = others as u64 * share / 1024 + 1;
    usize::try_from(budget).unwrap_or(usize::MAX).min(others).min(limit)
}

/// One scan.
pub(crate) struct Scan<'a> {
    view: &'a HostView,
    state: &'a mut PauseState,
    config: &'a PauseConfig,
    source: VcpuIndex,
    now: Nanos,
    budget: usize,
    /// Targets seen that were alone on their runqueue while the source was alone on its own.
    alone: u32,
    seen_any: bool,
}

/// What the fit of a candidate is compared by, smaller first: distance, then the longest wait.
type Fit = (u8, u64);

impl<'a> Scan<'a> {
    pub(crate) fn new(
        view: &'a HostView,
        state: &'a mut PauseState,
        config: &'a PauseConfig,
        source: VcpuIndex,
        now: Nanos,
    ) -> Self {
        let budget = scan_budget(view.vcpu_count() - 1, view.utilisation(), config);
        Self { view, state, config, source, now, budget, alone: 0, seen_any: false }
    }

    /// The target, or why there is none.
    pub(crate) fn run(mut self) -> Result<(VcpuIndex, Class), Reason> {
        self.state.guesses = self.state.guesses.wrapping_add(1);
        let is_turn = self.state.guesses.is_multiple_of(self.config.turn_every.max(2));
        if let Some(target) = is_turn.then(|| self.turn()).flatten() {
            self.state.last_turn = Some(target);
            return Ok((target, Class::Turn));
        }
        for class in SCAN_ORDER {
            if let Some(target) = self.best_of(class) {
                return Ok((target, class));
            }
            if self.alone >= self.config.bail_after {
                return Err(Reason::NobodyWaiting);
            }
        }
        Err(match (self.alone, self.seen_any) {
            (0, false) => Reason::NoCandidate,
            (0, true) => Reason::NoneEligible,
            _ => Reason::NobodyWaiting,
        })
    }

    /// The next candidate in turn, whatever its class: nobody is passed over for ever.
    fn turn(&self) -> Option<VcpuIndex> {
        let mut found = None;
        visit_from(
            self.view.wants.words(),
            self.state.turn_start(),
            |w| self.candidates(w),
            |index| {
                let Some(vcpu) = vcpu_at(index).filter(|v| !self.both_alone(*v)) else { return true };
                found = Some(vcpu);
                false
            },
        );
        found
    }

    fn best_of(&mut self, class: Class) -> Option<VcpuIndex> {
        let mut best: Option<(Fit, VcpuIndex)> = None;
        let (view, source) = (self.view, self.source);
        let from = view.get(source).and_then(|s| s.cpu);
        visit_from(
            view.wants.words(),
            self.state.scan_start(),
            |w| members(view, source, class, w),
            |index| {
                if self.budget == 0 || self.alone >= self.config.bail_after {
                    return false;
                }
                self.budget -= 1;
                self.seen_any = true;
                let Some(vcpu) = vcpu_at(index).filter(|v| self.is_eligible(*v)) else { return true };
                let fit = self.fit(vcpu, from);
                if best.is_none_or(|(so_far, _)| fit < so_far) {
                    best = Some((fit, vcpu));
                }
                true
            },
        );
        best.map(|(_, vcpu)| vcpu)
    }

    fn candidates(&self, word: usize) -> u64 {
        self.view.wants.word(word) & !mask_of(self.source, word)
    }

    /// The rules that pass a candidate over this time.
    fn is_eligible(&mut self, vcpu: VcpuIndex) -> bool {
        let at = vcpu.index();
        if self.view.spinning.contains(at) {
            let eligible = self.state.eligible.contains(at);
            self.state.eligible.assign(at, !eligible);
            if !eligible {
                return false;
            }
        }
        if self.both_alone(vcpu) {
            self.alone += 1;
            return false;
        }
        let credit = i64::try_from(self.config.credit_ns).unwrap_or(i64::MAX);
        let ledger = &self.state.vcpus[at].ledger;
        // A balance only shrinks with time: the division is for the few who stand at the bound.
        ledger.balance_ns < credit || ledger.balance_at(self.config, self.now) < credit
    }

    fn both_alone(&self, vcpu: VcpuIndex) -> bool {
        both_alone(self.view, self.source, vcpu)
    }

    fn fit(&self, vcpu: VcpuIndex, from: Option<topology::id::HostCpu>) -> Fit {
        let Some(seen) = self.view.get(vcpu) else { return (u8::MAX, u64::MAX) };
        let waited = seen.waiting_since.map_or(0, |since| self.now.since(since));
        (self.view.distance(from, seen.cpu), u64::MAX - waited)
    }
}

/// The seed's rule: source and target runqueue both hold one runnable task. Unknown lengths are not one.
pub(crate) fn both_alone(view: &HostView, source: VcpuIndex, target: VcpuIndex) -> bool {
    let alone = |vcpu| view.get(vcpu).is_some_and(|v| v.runqueue == Some(1));
    alone(source) && alone(target)
}

fn members(view: &HostView, source: VcpuIndex, class: Class, word: usize) -> u64 {
    let wants = view.wants.word(word) & !mask_of(source, word);
    let pending = view.pending.word(word);
    let spinning = view.spinning.word(word);
    let preempted = view.preempted.word(word);
    let in_kernel = view.in_kernel.word(word);
    wants
        & match class {
            Class::PendingInterrupt => pending,
            Class::PreemptedKernel => !pending & !spinning & preempted & in_kernel,
            Class::Preempted => !pending & !spinning & preempted & !in_kernel,
            Class::Runnable => !pending & !spinning & !preempted,
            Class::Spinning => !pending & spinning,
            Class::NamedOwner | Class::Interrupted | Class::Turn => 0,
        }
}

fn mask_of(vcpu: VcpuIndex, word: usize) -> u64 {
    if vcpu.index() / 64 == word { 1 << (vcpu.index() % 64) } else { 0 }
}

fn vcpu_at(index: usize) -> Option<VcpuIndex> {
    u32::try_from(index).ok().map(VcpuIndex)
}
