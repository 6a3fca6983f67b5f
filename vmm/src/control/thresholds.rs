// SPDX-License-Identifier: Apache-2.0
//! What nobody asked for and somebody may want to know: pressure and steal over their thresholds, moves, panics.
//!
//! Looked at once a second on the main thread. A crossing is told once in each direction; downwards it counts from half of
//! the threshold on, so that a number that sways around it is not told every second.

use std::time::{Duration, Instant};

use api::wire::{EventKind, Move};

use super::carry_out::Desk;
use crate::pause::clock;

/// Between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was seen at the last look.
pub struct Watcher<'a> {
    desk: &'a Desk,
    at: Instant,
    events: u64,
    waiting_ns: u64,
    run_ns: u64,
    moves: u64,
    crash_loaded: u64,
    pressed: Crossing,
    stolen: Crossing,
}

/// On which side of its threshold a number is.
#[derive(Clone, Copy, Debug, Default)]
struct Crossing {
    above: bool,
}

impl Crossing {
    /// Whether the number has crossed the threshold, or the threshold the number; then `above` is where it is now.
    fn crosses(&mut self, number: u64, threshold: u64) -> bool {
        let above = if self.above { number > threshold / 2 } else { number >= threshold };
        std::mem::replace(&mut self.above, above) != above
    }
}

impl<'a> Watcher<'a> {
    /// Begins to watch a machine that was just started.
    #[must_use]
    pub fn new(desk: &'a Desk) -> Self {
        let (pressed, stolen) = (Crossing::default(), Crossing::default());
        let (events, waiting_ns, run_ns, moves, crash_loaded) = (0, 0, 0, 0, 0);
        Self { desk, at: Instant::now(), events, waiting_ns, run_ns, moves, crash_loaded, pressed, stolen }
    }

    /// Looks, and tells what has changed.
    pub fn look(&mut self) {
        let view = self.desk.view();
        let passed_ms = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.at = Instant::now();
        let events = view.driver.seats().iter().map(|seat| seat.events.get()).sum();
        let spent = view.vcpus.iter().map(|watch| view.spent(watch));
        let (run_ns, waiting_ns) =
            spent.fold((0, 0), |(run, waiting), spent| (run + spent.wall_ns, waiting + spent.ledger.waiting_ns));
        let thresholds = self.desk.station().thresholds_told();
        self.pressure(events, passed_ms, thresholds.pause_events_per_s.granted);
        self.steal(waiting_ns, run_ns, thresholds.steal_permille.granted);
        self.panics();
        self.placement();
    }

    fn tell(&self, what: EventKind) {
        self.desk.station().events().publish(clock::now().0, what);
    }

    fn pressure(&mut self, events: u64, passed_ms: u64, threshold_per_s: u64) {
        let events_per_s =
            events.saturating_sub(std::mem::replace(&mut self.events, events)).saturating_mul(1000) / passed_ms;
        if self.pressed.crosses(events_per_s, threshold_per_s) {
            let above = self.pressed.above;
            self.tell(EventKind::PausePressure { above, events_per_s, threshold_per_s });
        }
    }

    fn steal(&mut self, waiting_ns: u64, run_ns: u64, threshold: u64) {
        let waited = waiting_ns.saturating_sub(std::mem::replace(&mut self.waiting_ns, waiting_ns));
        let ran = run_ns.saturating_sub(std::mem::replace(&mut self.run_ns, run_ns));
        let permille = waited.saturating_mul(1000) / ran.max(1);
        if self.stolen.crosses(permille, threshold) {
            let above = self.stolen.above;
            let [permille, threshold_permille] =
                [permille, threshold].map(|one| u32::try_from(one).unwrap_or(u32::MAX));
            self.tell(EventKind::Steal { above, permille, threshold_permille });
        }
    }

    fn panics(&mut self) {
        let crash_loaded = self.desk.view().end.shrugged().crash_loaded;
        for _ in self.crash_loaded..crash_loaded {
            self.tell(EventKind::GuestPanic { crash_loaded: true });
        }
        self.crash_loaded = crash_loaded;
    }

    fn placement(&mut self) {
        let placed = self.desk.view().placement_told(self.desk.station().generation());
        let moves = placed.moves.values().sum::<u64>();
        let fresh = usize::try_from(moves.saturating_sub(self.moves)).unwrap_or(usize::MAX);
        let known = placed.last_moves.len().saturating_sub(fresh);
        for Move { vcpu, from, to, rule, .. } in placed.last_moves.into_iter().skip(known) {
            self.tell(EventKind::PlacementMoved { vcpu, from, to, rule });
        }
        self.moves = moves;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_is_told_once_in_each_direction() {
        let mut crossing = Crossing::default();
        let told = [99, 100, 500, 51, 50, 99, 100].map(|number| crossing.crosses(number, 100));
        assert_eq!(told, [false, true, false, false, true, false, true]);
    }

    #[test]
    fn a_threshold_that_moves_past_the_number_is_crossed() {
        let mut crossing = Crossing::default();
        let told = [(90, 100), (90, 90), (90, 179), (90, 180), (90, 91)];
        let told = told.map(|(number, threshold)| (crossing.crosses(number, threshold), crossing.above));
        assert_eq!(told, [(false, false), (true, true), (false, true), (true, false), (false, false)]);
    }
}
