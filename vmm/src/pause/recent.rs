// SPDX-License-Identifier: Apache-2.0
//! The latest decisions about pause events, for whoever watches: kept in memory, bounded, and only once asked for.
//!
//! Invariant: a vCPU's thread never waits here. What comes while somebody reads is counted and not kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use policy::pause::{Act, Class, Decision, How, Reason, YieldOutcome};
use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::deed::{Deed, Then};

/// Decisions that are kept.
const KEPT: usize = 1024;

/// What was decided, without its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// To favour another, by the means of this name.
    Yield(&'static str),
    /// To block.
    Park,
    /// To go on spinning.
    Spin,
    /// To do nothing, for this reason.
    Bail(Reason),
}

/// A decision that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Decisions up to this one.
    pub number: u64,
    /// When, on the clock of [`super::clock`].
    pub at: Nanos,
    /// Who spun.
    pub vcpu: VcpuIndex,
    /// Whom the guest named.
    pub owner: Option<VcpuIndex>,
    /// What was decided.
    pub what: What,
    /// Whom it favours.
    pub target: Option<VcpuIndex>,
    /// By which rule the target was found.
    pub class: Option<Class>,
    /// What came of it.
    pub outcome: Option<YieldOutcome>,
}

/// The latest decisions of a VM.
#[derive(Debug, Default)]
pub struct Recent {
    on: AtomicBool,
    total: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    latest: VecDeque<Remembered>,
    /// Number of each vCPU's last decision that was kept.
    last: BTreeMap<VcpuIndex, u64>,
}

/// What there is to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Decisions so far, since they are kept.
    pub total: u64,
    /// The latest, oldest first.
    pub latest: Vec<Remembered>,
}

impl Recent {
    /// From now on decisions are kept.
    pub fn keep(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// The latest `most` of them.
    #[must_use]
    pub fn seen(&self, most: usize) -> Seen {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = kept.latest.len().saturating_sub(most);
        Seen { total: self.total.load(Ordering::Relaxed), latest: kept.latest.iter().skip(skipped).copied().collect() }
    }

    /// A decision of the policy.
    pub(super) fn decided(&self, vcpu: VcpuIndex, owner: Option<VcpuIndex>, decision: &Decision, now: Nanos) {
        let (what, target) = match decision.act {
            Act::YieldTo { target, how } => (What::Yield(name(how)), Some(target)),
            Act::Yield => (What::Yield("yield"), None),
            Act::Park { .. } => (What::Park, None),
            Act::Spin => (What::Spin, None),
            Act::Bail(reason) => (What::Bail(reason), None),
        };
        self.put(Remembered { number: 0, at: now, vcpu, owner, what, target, class: decision.class, outcome: None });
    }

    /// What a mechanism does that is always used.
    pub(super) fn fixed(&self, vcpu: VcpuIndex, owner: Option<VcpuIndex>, deed: &Deed, now: Nanos) {
        let what = match (deed.then, deed.wake) {
            (Then::Nothing, None) => What::Spin,
            (Then::Nothing, Some(_)) => What::Yield("wake"),
            (Then::Yield, _) => What::Yield("yield"),
            (Then::Park(_), Some(_)) => What::Yield("wake_and_park"),
            (Then::Park(_), None) => What::Park,
            (Then::Hypercall(_), _) => What::Yield("hypercall"),
        };
        self.put(Remembered { number: 0, at: now, vcpu, owner, what, target: deed.target, class: None, outcome: None });
    }

    /// Called under the driver's lock, so that numbers go up.
    fn put(&self, decision: Remembered) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let number = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(mut kept) = self.unless_read() else { return };
        if kept.latest.len() == KEPT {
            kept.latest.pop_front();
        }
        kept.latest.push_back(Remembered { number, ..decision });
        kept.last.insert(decision.vcpu, number);
    }

    /// The last decision of `vcpu` was acted on; `outcome` is what came of it, if that is known.
    pub(super) fn done(&self, vcpu: VcpuIndex, outcome: Option<YieldOutcome>) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut kept) = self.unless_read() else { return };
        let number = kept.last.get(&vcpu).copied().unwrap_or(0);
        if let Ok(at) = kept.latest.binary_search_by_key(&number, |one| one.number) {
            kept.latest[at].outcome = outcome;
        }
    }

    fn unless_read(&self) -> Option<MutexGuard<'_, Kept>> {
        match self.kept.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// As decisions are told.
const fn name(how: How) -> &'static str {
    match how {
        How::SchedYield => "yield",
        How::Wake => "wake",
        How::WakeThenYield => "wake_then_yield",
        How::WakeAndPark { .. } => "wake_and_park",
        How::Hypercall => "hypercall",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECISION: Decision = Decision {
        act: Act::YieldTo { target: VcpuIndex(1), how: How::SchedYield },
        class: None,
        quiet_until: Nanos(0),
    };

    #[test]
    fn the_latest_are_kept_with_what_came_of_them() {
        let recent = Recent::default();
        recent.decided(VcpuIndex(0), None, &DECISION, Nanos(1));
        assert_eq!(recent.seen(9), Seen::default(), "nobody asked for it yet");
        recent.keep();
        for at in 0..2000 {
            recent.decided(VcpuIndex(0), None, &DECISION, Nanos(at));
        }
        recent.done(VcpuIndex(0), Some(YieldOutcome::Boosted));
        let seen = recent.seen(10);
        assert_eq!((seen.total, seen.latest.len(), seen.latest[9].number), (2000, 10, 2000));
        assert_eq!(seen.latest[9].outcome, Some(YieldOutcome::Boosted));
        assert_eq!(recent.seen(usize::MAX).latest.len(), KEPT);
    }

    #[test]
    fn a_decision_does_not_wait_for_a_reader() {
        let recent = Recent::default();
        recent.keep();
        let reading = recent.kept.lock().unwrap();
        recent.decided(VcpuIndex(0), None, &DECISION, Nanos(1));
        recent.done(VcpuIndex(0), None);
        drop(reading);
        assert_eq!((recent.seen(9).total, recent.seen(9).latest.len()), (1, 0));
    }
}
