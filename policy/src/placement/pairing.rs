// SPDX-License-Identifier: Apache-2.0
//! Which pairs of vCPUs are brought together: those that keep yielding to each other, one pair at a time, and only for as
//! long as that is measured to help.
//!
//! ```text
//! watching ── a pair stands out for a window ──► asked ── it was brought together ──► trial ── it helped ──► kept
//!     ▲                                            │                                    │                      │
//!     └────── nowhere nearer to be had ◄───────────┴────── taken back, rests ◄──────────┴── not any more ◄─────┘
//! ```
//! Measured is what the guest itself counts: waits that came to their end, by both. Where a guest does not count, fewer
//! pause events do, but only between two CPUs: on one CPU nobody spins while the other works, whether that helps or not,
//! so one CPU is not tried then.
//!
//! Invariant: no vCPU of a pair moved in the window before its trial, nor in the one in it. A pair that was tried in vain
//! rests, each time twice as long.

mod window;

use std::collections::BTreeMap;

use topology::id::{HostCpu, VcpuIndex};

use self::window::{Rate, Window, helps};
use super::Decision;
use super::decision::Rule;
use super::view::{Pair, Step};
use crate::time::Nanos;

/// Least length of a window; the first look after it ends it.
const WINDOW_NS: u64 = 1_000_000_000;
/// After a move this long passes unmeasured: caches warm up, queues sort themselves.
const SETTLE_NS: u64 = 250_000_000;
/// Windows for which a pair is asked for in vain, and for which a kept pair may bring less than before it was brought
/// together.
const PATIENCE: u32 = 4;
/// How long a pair that was tried in vain rests, at first and at most.
const REST_NS: (u64, u64) = (10_000_000_000, 640_000_000_000);
/// Pairs that are kept together, and pairs whose rest is remembered, at most.
const MOST_KEPT: usize = 8;
const MOST_RESTING: usize = 256;

/// How often one vCPU has yielded to another since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Yielded {
    /// Who gave.
    pub source: VcpuIndex,
    /// Who was to get.
    pub target: VcpuIndex,
    /// How often.
    pub count: u64,
}

/// What one vCPU has told of its waits since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Pause events.
    pub events: u64,
    /// Waits that came to their end; `None` where the guest does not count them.
    pub finished: Option<u64>,
}

/// What came of pairs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// Pairs brought together to see whether that helps.
    pub tried: u64,
    /// Of these, how many it helped.
    pub helped: u64,
    /// Pairs taken apart again.
    pub undone: u64,
}

/// Two vCPUs, the lower index first.
type Two = (usize, usize);

/// Where a pair was before it was brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    pair: Two,
    /// Who moved, from where, and who went the other way; `None` if they shared a CPU already and only stopped roaming.
    way: Option<(VcpuIndex, HostCpu, Option<VcpuIndex>)>,
    rate: Rate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Watching,
    Asked {
        pair: Two,
        rate: Rate,
        windows: u32,
    },
    Trial(Before),
    Returning {
        before: Before,
        windows: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    before: Before,
    /// Windows in a row that brought less than before.
    worse: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    until: Nanos,
    length_ns: u64,
}

/// See the module's text. Fed once a look; what it asks for goes into [`super::Snapshot::pairs`].
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    phase: Phase,
    kept: Vec<Kept>,
    resting: BTreeMap<Two, Rest>,
    window: Window,
    places: Vec<HostCpu>,
    counts: PairCounts,
}

impl Pairing {
    /// One look: where every vCPU is, who has yielded to whom and what each told of its waits since the last look. Gives
    /// what the next pass should do.
    pub fn look(&mut self, now: Nanos, places: &[HostCpu], yielded: &[Yielded], waits: &[Waits]) -> Vec<Pair> {
        self.window.moved.resize(places.len(), false);
        for (index, (before, place)) in self.places.iter().zip(places).enumerate() {
            self.window.moved[index] |= before != place;
        }
        places.clone_into(&mut self.places);
        self.window.take(now, yielded, waits);
        if self.window.since.is_some_and(|since| now.since(since) >= WINDOW_NS) {
            self.close(now);
        }
        self.wishes()
    }

    /// What a pass did, in the order in which it did it.
    pub fn done(&mut self, moves: &[Decision], now: Nanos) {
        for decision in moves.iter().filter(|decision| decision.rule == Rule::Pair) {
            match self.phase {
                Phase::Asked { pair, rate, .. } if is_of(decision.vcpu, pair) => {
                    let way = decision.from.map(|from| (decision.vcpu, from, decision.swap_with));
                    self.begin(Before { pair, way, rate }, now);
                    // The move itself does not spoil the window that measures it.
                    self.forget(decision);
                }
                Phase::Returning { before, .. } if is_of(decision.vcpu, before.pair) => {
                    self.forget(decision);
                    self.give_up(before.pair, now);
                }
                _ => {}
            }
        }
    }

    /// vCPUs that stay on their CPU instead of roaming among those that the VM shares: both of a pair on one CPU.
    #[must_use]
    pub fn together(&self) -> Vec<VcpuIndex> {
        let trial = match self.phase {
            Phase::Trial(before) => Some(before.pair),
            Phase::Watching | Phase::Asked { .. } | Phase::Returning { .. } => None,
        };
        let pairs = self.kept.iter().map(|kept| kept.before.pair).chain(trial);
        pairs.filter(|pair| self.on_one_cpu(*pair)).flat_map(|(a, b)| [vcpu(a), vcpu(b)]).collect()
    }

    /// What came of pairs so far.
    #[must_use]
    pub fn counts(&self) -> PairCounts {
        self.counts
    }

    fn wishes(&self) -> Vec<Pair> {
        match self.phase {
            Phase::Watching | Phase::Trial(_) => Vec::new(),
            Phase::Asked { pair: (a, b), rate, .. } => {
                let step = if rate.finished.is_some() { Step::OneCpu } else { Step::Nearer };
                let pair = |mover, anchor| Pair { mover: vcpu(mover), anchor: vcpu(anchor), step };
                vec![pair(b, a), pair(a, b)]
            }
            Phase::Returning { before, .. } => {
                let back = |(mover, to, other): (VcpuIndex, HostCpu, Option<VcpuIndex>)| {
                    let (a, b) = before.pair;
                    let anchor = if mover.index() == a { vcpu(b) } else { vcpu(a) };
                    Pair { mover, anchor, step: Step::Back { to, other } }
                };
                before.way.map(back).into_iter().collect()
            }
        }
    }

    fn on_one_cpu(&self, (a, b): Two) -> bool {
        self.places.get(a).zip(self.places.get(b)).is_some_and(|(a, b)| a == b)
    }

    fn begin(&mut self, before: Before, now: Nanos) {
        self.counts.tried += 1;
        self.phase = Phase::Trial(before);
        self.window = Window { opens: Some(now.after(SETTLE_NS)), ..Window::of(self.places.len()) };
    }

    /// Takes the places that a decision made as known.
    fn forget(&mut self, decision: &Decision) {
        let ways = [Some((decision.vcpu, decision.to)), decision.swap_with.zip(decision.from)];
        for (vcpu, place) in ways.into_iter().flatten() {
            if let Some(known) = self.places.get_mut(vcpu.index()) {
                *known = place;
            }
        }
    }

    /// The pair is as it was, or goes its own ways: it rests.
    fn give_up(&mut self, pair: Two, now: Nanos) {
        self.counts.undone += 1;
        self.rest(pair, now);
    }

    fn rest(&mut self, pair: Two, now: Nanos) {
        if self.resting.len() >= MOST_RESTING {
            self.resting.retain(|_, rest| now.is_before(rest.until));
        }
        let length_ns =
            self.resting.get(&pair).map_or(REST_NS.0, |rest| rest.length_ns.saturating_mul(2)).min(REST_NS.1);
        if self.resting.len() < MOST_RESTING || self.resting.contains_key(&pair) {
            self.resting.insert(pair, Rest { until: now.after(length_ns), length_ns });
        }
        self.phase = Phase::Watching;
    }

    /// A window is over.
    fn close(&mut self, now: Nanos) {
        let next = Window { since: Some(now), ..Window::of(self.places.len()) };
        let mut window = std::mem::replace(&mut self.window, next);
        window.length_ns = window.since.map_or(0, |since| now.since(since));
        self.look_after(&window, now);
        match self.phase {
            Phase::Watching => self.choose(&window, now),
            Phase::Asked { pair, windows, .. } if windows < PATIENCE => match window.rate(pair) {
                Some(rate) if window.stands_out(pair) => {
                    self.phase = Phase::Asked { pair, rate, windows: windows + 1 };
                }
                _ => self.phase = Phase::Watching,
            },
            // Nothing nearer is to be had, or the way back is taken: both are left at that.
            Phase::Asked { pair, .. } => self.rest(pair, now),
            Phase::Returning { before, windows } if windows >= PATIENCE => self.give_up(before.pair, now),
            Phase::Returning { before, windows } => self.phase = Phase::Returning { before, windows: windows + 1 },
            Phase::Trial(before) => self.judge(before, &window, now),
        }
    }

    fn judge(&mut self, before: Before, window: &Window, now: Nanos) {
        let one_cpu = self.on_one_cpu(before.pair);
        match window.rate(before.pair) {
            // Some other rule has moved one of them: nothing was measured, and the pair is wherever that put it.
            None => self.phase = Phase::Watching,
            Some(rate) if helps(&before.rate, &rate, one_cpu) => {
                self.counts.helped += 1;
                self.kept.push(Kept { before, worse: 0 });
                self.phase = Phase::Watching;
            }
            Some(_) => self.take_back(before, now),
        }
    }

    fn take_back(&mut self, before: Before, now: Nanos) {
        match before.way {
            Some(_) => self.phase = Phase::Returning { before, windows: 0 },
            None => self.give_up(before.pair, now),
        }
    }

    /// Lets go of kept pairs that have drifted apart or no longer gain.
    fn look_after(&mut self, window: &Window, now: Nanos) {
        let mut lost = None;
        self.kept.retain_mut(|kept| {
            let Some(rate) = window.rate(kept.before.pair) else { return false };
            let worse = rate.finished.zip(kept.before.rate.finished).is_some_and(|(now, before)| now < before);
            // A pair that does nothing has nothing to lose.
            kept.worse = if worse && rate.events > 0 { kept.worse + 1 } else { 0 };
            let stays = kept.worse < PATIENCE || self.phase != Phase::Watching || lost.is_some();
            if !stays {
                lost = Some(kept.before);
            }
            stays
        });
        if let Some(before) = lost {
            self.take_back(before, now);
        }
    }

    /// The pair that stands out most, if one does.
    fn choose(&mut self, window: &Window, now: Nanos) {
        let is_known = |pair: &Two| {
            self.kept.iter().any(|kept| kept.before.pair == *pair)
                || self.resting.get(pair).is_some_and(|rest| now.is_before(rest.until))
        };
        let both = window.yields.iter().map(|((a, b), _)| (*a.min(b), *a.max(b)));
        let candidates = both.filter(|pair| window.stands_out(*pair) && !is_known(pair));
        // Of equal ones the first.
        let best = candidates.max_by_key(|pair| (window.between(*pair), std::cmp::Reverse(*pair)));
        let Some((pair, rate)) = best.and_then(|pair| Some((pair, window.rate(pair)?))) else { return };
        if self.kept.len() >= MOST_KEPT {
            return;
        }
        match (self.on_one_cpu(pair), rate.finished) {
            (true, Some(_)) => self.begin(Before { pair, way: None, rate }, now),
            (true, None) => {}
            (false, _) => self.phase = Phase::Asked { pair, rate, windows: 0 },
        }
    }
}

fn is_of(vcpu: VcpuIndex, (a, b): Two) -> bool {
    vcpu.index() == a || vcpu.index() == b
}

fn vcpu(index: usize) -> VcpuIndex {
    super::plan::vcpu(index)
}

#[cfg(test)]
mod tests;
