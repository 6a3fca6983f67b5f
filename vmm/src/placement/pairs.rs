// SPDX-License-Identifier: Apache-2.0
//! Pairs of vCPUs that keep yielding to each other: from the counters of pause handling to `policy::placement::Pairing`.
//!
//! Invariant: without somebody who counts, or with rule `pair` off, no pair is asked for.

use std::sync::Arc;

use policy::placement::{Decision, Pair, Pairing, Waits, Yielded};
use policy::time::Nanos;
use topology::id::VcpuIndex;

use super::confine;
use super::mover::Mover;

/// What one vCPU has counted since the guest started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Pause events.
    pub events: u64,
    /// Waits that came to their end; `None` where the guest does not count them.
    pub finished: Option<u64>,
    /// To whom it has yielded, and how often.
    pub yields: Vec<(VcpuIndex, u64)>,
}

/// Pause handling, as placement knows it.
pub trait PauseHandling: Send + Sync {
    /// What every vCPU has counted, by index.
    fn told(&self) -> Vec<Told>;
    /// The vCPUs may use so many host CPUs together from now on: what helps a spinner depends on it.
    fn may_use(&self, cpus: u32);
}

/// Who counts yields, what was counted at the last look, and what is made of it.
#[derive(Default)]
pub(super) struct Pairs {
    handling: Option<Arc<dyn PauseHandling>>,
    before: Vec<Told>,
    pub(super) pairing: Pairing,
    /// vCPUs that stay on their CPU, one of a pair beside the other.
    pub(super) together: Vec<VcpuIndex>,
}

impl Pairs {
    pub(super) fn of(handling: Option<Arc<dyn PauseHandling>>) -> Self {
        Self { handling, ..Self::default() }
    }
}

impl Mover {
    /// The pairs that the next pass should bring together or take apart.
    pub(super) fn wished_pairs(&mut self, now: Nanos) -> Vec<Pair> {
        let pairs = &mut self.pairs;
        let Some(handling) = pairs.handling.as_ref().filter(|_| self.asked.rules.pair) else {
            pairs.pairing = Pairing::default();
            return Vec::new();
        };
        let told = handling.told();
        let (yielded, waits) = between(&pairs.before, &told);
        pairs.before = told;
        pairs.pairing.look(now, &self.places, &yielded, &waits)
    }

    /// Tells pause handling how many CPUs the vCPUs have together now.
    pub(super) fn tell_cpus(&self) {
        let confined = confine::union(self.site.cpus.iter()).len();
        let cpus = if confined == 0 { self.site.host.usable().len() } else { confined };
        if let Some(handling) = &self.pairs.handling {
            handling.may_use(u32::try_from(cpus).unwrap_or(u32::MAX));
        }
    }

    /// Tells what became of them; whether vCPUs stay, or no longer stay, on their CPU because of it.
    pub(super) fn pairs_done(&mut self, moves: &[Decision], now: Nanos) -> bool {
        self.pairs.pairing.done(moves, now);
        self.account.pairs = self.pairs.pairing.counts();
        let together = self.pairs.pairing.together();
        let changed = together != self.pairs.together;
        self.pairs.together = together;
        changed
    }
}

/// What was counted between two looks.
fn between(before: &[Told], after: &[Told]) -> (Vec<Yielded>, Vec<Waits>) {
    let (mut yielded, mut waits) = (Vec::new(), Vec::with_capacity(after.len()));
    for (source, told) in (0..).map(VcpuIndex).zip(after) {
        let old = before.get(source.index());
        for &(target, count) in &told.yields {
            let then =
                old.and_then(|old| old.yields.iter().find(|(who, _)| *who == target)).map_or(0, |(_, then)| *then);
            // Who was forgotten and came anew counts from one.
            let count = count.checked_sub(then).unwrap_or(count);
            yielded.extend((count > 0).then_some(Yielded { source, target, count }));
        }
        let events = told.events.saturating_sub(old.map_or(0, |old| old.events));
        let finished =
            told.finished.map(|finished| finished.saturating_sub(old.and_then(|old| old.finished).unwrap_or(0)));
        waits.push(Waits { events, finished });
    }
    (yielded, waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_is_not_counted_again() {
        let told = |events, finished, count| Told { events, finished, yields: vec![(VcpuIndex(1), count)] };
        let (yielded, waits) = between(&[told(5, None, 3)], &[told(9, Some(4), 7)]);
        assert_eq!(yielded, [Yielded { source: VcpuIndex(0), target: VcpuIndex(1), count: 4 }]);
        assert_eq!(waits, [Waits { events: 4, finished: Some(4) }]);
        let (yielded, waits) = between(&[told(9, Some(4), 7)], &[told(9, Some(4), 2)]);
        assert_eq!(yielded[0].count, 2, "forgotten, and here anew");
        assert_eq!(waits, [Waits { events: 0, finished: Some(0) }]);
        assert!(between(&[told(9, None, 7)], &[told(9, None, 7)]).0.is_empty());
    }
}
