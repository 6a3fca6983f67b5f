// SPDX-License-Identifier: Apache-2.0
//! What a window of looks shows of pairs: who stands out, what a pair did, whether that is more than in another window.
//!
//! Invariant: what is counted lies between two looks, and rates are per second, however long the window came to be.

use std::collections::BTreeMap;

use super::{Two, Waits, Yielded};
use crate::time::Nanos;

/// Fewer yields than this in a window are no habit.
const LEAST_YIELDS: u64 = 64;
/// A trial must bring more than its window before by one part in this many.
const GAIN: u64 = 8;
/// Fewer pause events than this part of those before, where the guest does not count its waits.
const CALMER: u64 = 2;

/// What a pair did in a window, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) events: u64,
    pub(super) finished: Option<u64>,
}

/// What was seen since a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Before this everything passes unmeasured.
    pub(super) opens: Option<Nanos>,
    /// The first look after that: what is counted lies between looks.
    pub(super) since: Option<Nanos>,
    /// Known once it is over.
    pub(super) length_ns: u64,
    pub(super) yields: BTreeMap<(usize, usize), u64>,
    pub(super) waits: Vec<Waits>,
    /// Whether each vCPU moved.
    pub(super) moved: Vec<bool>,
}

impl Window {
    pub(super) fn of(vcpus: usize) -> Self {
        Self { moved: vec![false; vcpus], waits: vec![Waits::default(); vcpus], ..Self::default() }
    }

    pub(super) fn take(&mut self, now: Nanos, yielded: &[Yielded], waits: &[Waits]) {
        if self.since.is_none() {
            let open = self.opens.is_none_or(|opens| !now.is_before(opens));
            self.since = open.then_some(now);
            return;
        }
        let vcpus = self.moved.len();
        self.waits.resize(vcpus, Waits::default());
        for one in yielded.iter().filter(|one| one.source.index().max(one.target.index()) < vcpus) {
            let sum = self.yields.entry((one.source.index(), one.target.index())).or_default();
            *sum = sum.saturating_add(one.count);
        }
        for (sum, one) in self.waits.iter_mut().zip(waits) {
            sum.events = sum.events.saturating_add(one.events);
            sum.finished = match (sum.finished, one.finished) {
                (Some(sum), Some(one)) => Some(sum.saturating_add(one)),
                (sum, one) => sum.or(one),
            };
        }
    }

    pub(super) fn between(&self, (a, b): Two) -> u64 {
        let way = |from, to| self.yields.get(&(from, to)).copied().unwrap_or(0);
        way(a, b).saturating_add(way(b, a))
    }

    /// Whether the two yield to each other, both ways, at least as much as to and from all others together.
    pub(super) fn stands_out(&self, (a, b): Two) -> bool {
        let both_ways = [(a, b), (b, a)].iter().all(|way| self.yields.get(way).is_some_and(|count| *count > 0));
        let mine = |two: &Two| [two.0, two.1].iter().any(|one| *one == a || *one == b);
        let theirs = self.yields.iter().filter(|(two, _)| mine(two)).map(|(_, count)| *count);
        let all = theirs.fold(0, u64::saturating_add);
        let between = self.between((a, b));
        both_ways && between >= LEAST_YIELDS && between >= all.div_ceil(2)
    }

    fn per_second(&self, count: u64) -> u64 {
        count.saturating_mul(1_000_000_000) / self.length_ns.max(1)
    }

    /// What a pair did; `None` if one of them moved.
    pub(super) fn rate(&self, (a, b): Two) -> Option<Rate> {
        if a.max(b) >= self.moved.len() || self.moved[a] || self.moved[b] {
            return None;
        }
        let (a, b) = (self.waits.get(a)?, self.waits.get(b)?);
        let finished = match (a.finished, b.finished) {
            (None, None) => None,
            (a, b) => Some(self.per_second(a.unwrap_or(0).saturating_add(b.unwrap_or(0)))),
        };
        Some(Rate { events: self.per_second(a.events.saturating_add(b.events)), finished })
    }
}

/// Whether being together helps.
pub(super) fn helps(before: &Rate, after: &Rate, one_cpu: bool) -> bool {
    let gains =
        before.finished.zip(after.finished).is_some_and(|(before, after)| after > before.saturating_add(before / GAIN));
    let calmer = after.events <= before.events / CALMER;
    gains || (!one_cpu && calmer)
}
