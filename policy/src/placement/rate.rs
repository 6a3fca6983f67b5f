// SPDX-License-Identifier: Apache-2.0
//! How often to look: the next balance of a CPU, the cost of looking, and the gate before a whole pass.
//!
//! From seed newidle-rate-limit. Three rules per CPU and, from Linux 6.19's proportional newly-idle balance (commit
//! 33cf66d88306), one for the pass.
//!
//! Properties:
//! - *the next balance is never in the past*, also when the clock wraps: `next = max(now + tick, last + interval)`;
//! - *a CPU that was more than 80 % busy keeps its long interval* when it goes idle: work will wake there soon;
//! - *a CPU that is idle for less than looking costs is not looked at*;
//! - a pass that keeps finding nothing runs more rarely, but at least every 16th time.

use crate::time::Nanos;

use super::view::FULL;

/// Least time between two looks at a CPU, in ns: the kernel's tick at `CONFIG_HZ=1000`.
pub const TICK_NS: u64 = 1_000_000;
/// A busy CPU's interval is this many times an idle one's (`busy_factor` of `sd_init`, kernel/sched/topology.c, 5.10).
pub const BUSY_FACTOR: u64 = 16;
/// The maximum cost loses one part in this many each second (research A6: about 1 % a second).
const COST_DECAY: u64 = 100;
/// Passes after which the gate takes stock (Linux 6.19: 1024; a pass here is 100 ms and not a wake-up).
const WINDOW: u32 = 64;
/// A pass runs at least every this many times.
const RAREST: u32 = 16;

/// When one CPU was looked at and when it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuRate {
    last: Nanos,
    next: Nanos,
}

/// What a CPU has been doing, as far as the rate limit cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuHabit {
    /// Utilisation over seconds, in 1024ths.
    pub average: u32,
    /// Mean length of its idle periods in ns.
    pub mean_idle_ns: u64,
}

impl CpuRate {
    /// A CPU that may be looked at from `now` on.
    #[must_use]
    pub const fn new(now: Nanos) -> Self {
        Self { last: now, next: now }
    }

    /// When it may be looked at next.
    #[must_use]
    pub const fn next(&self) -> Nanos {
        self.next
    }

    /// Whether to look at the CPU now, and sets the next time either way.
    ///
    /// `interval_ns` is an idle CPU's interval; `cost_ns` is what looking costs.
    pub fn look(&mut self, now: Nanos, habit: CpuHabit, interval_ns: u64, cost_ns: u64) -> bool {
        if now.is_before(self.next) {
            return false;
        }
        let look = habit.mean_idle_ns >= cost_ns;
        if look {
            self.last = now;
        }
        let busy = u64::from(habit.average) * 10 > u64::from(FULL) * 8;
        let interval_ns = if busy { interval_ns.saturating_mul(BUSY_FACTOR) } else { interval_ns };
        // Points half the range apart cannot be compared: no interval is that long.
        let interval_ns = interval_ns.min(u64::MAX / 4);
        let stale = now.since(self.last) > u64::MAX / 4;
        let from_last = if stale { now } else { self.last.after(interval_ns) };
        self.next = now.after(TICK_NS).later(from_last);
        look
    }
}

/// The highest cost of a pass in the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    max_ns: u64,
    decayed: Nanos,
}

impl Cost {
    /// Takes a measured cost into account.
    pub fn charge(&mut self, cost_ns: u64, now: Nanos) {
        let seconds = now.since(self.decayed) / 1_000_000_000;
        if seconds > 0 {
            let kept = (0..seconds.min(1000)).fold(self.max_ns, |ns, _| ns - ns.div_ceil(COST_DECAY).min(ns));
            *self = Self { max_ns: kept, decayed: now };
        }
        self.max_ns = self.max_ns.max(cost_ns);
    }

    /// The cost to expect, in ns.
    #[must_use]
    pub const fn expected_ns(&self) -> u64 {
        self.max_ns
    }
}

/// Lets a pass run in proportion to how often passes moved something. Deterministic where the kernel rolls a die: it
/// adds up fractions, and runs when they make a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    calls: u32,
    successes: u32,
    /// Passes that run of [`WINDOW`].
    ratio: u32,
    saved: u32,
}

impl Default for Gate {
    fn default() -> Self {
        Self { calls: WINDOW / 2, successes: WINDOW / 2, ratio: WINDOW, saved: 0 }
    }
}

impl Gate {
    /// Whether the pass should run.
    pub fn opens(&mut self) -> bool {
        self.saved += self.share();
        let open = self.saved >= WINDOW;
        if open {
            self.saved -= WINDOW;
        }
        open
    }

    /// Passes of [`WINDOW`] that run; one more than succeed, as in the kernel.
    fn share(&self) -> u32 {
        (self.ratio + 1).clamp(WINDOW / RAREST, WINDOW)
    }

    /// Records what a pass that ran brought. Skipped passes count as successes of a successful one.
    pub fn record(&mut self, moved: bool) {
        let weight = WINDOW.div_ceil(self.share());
        self.calls += weight;
        self.successes += if moved { weight } else { 0 };
        if self.calls >= WINDOW {
            self.ratio = (self.successes * WINDOW / self.calls).min(WINDOW);
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDLE: CpuHabit = CpuHabit { average: 100, mean_idle_ns: 1_000_000 };
    const MS: u64 = 1_000_000;

    proptest! {
        #[test]
        fn the_next_balance_is_never_in_the_past(
            start in any::<u64>(), steps in proptest::collection::vec((0u64..10_000_000_000, 0u32..1100, any::<u64>()), 1..50),
            interval_ns in any::<u64>(), cost_ns in any::<u64>(),
        ) {
            let mut now = Nanos(start);
            let mut rate = CpuRate::new(now);
            for (step, average, mean_idle_ns) in steps {
                now = now.after(step);
                let due = !now.is_before(rate.next());
                let looked = rate.look(now, CpuHabit { average, mean_idle_ns }, interval_ns, cost_ns);
                prop_assert!(now.is_before(rate.next()), "{:?} at {}", rate, now);
                prop_assert!(!looked || due);
                prop_assert!(!due || rate.next().since(now) >= TICK_NS);
            }
        }
    }

    #[test]
    fn the_next_balance_survives_a_wrap() {
        let now = Nanos(u64::MAX - 5);
        let mut rate = CpuRate::new(now);
        assert!(rate.look(now, IDLE, 100 * MS, 0));
        assert_eq!(rate.next(), Nanos(100 * MS - 6));
        assert!(!rate.look(Nanos(50 * MS), IDLE, 100 * MS, 0));
        assert!(rate.look(Nanos(100 * MS), IDLE, 100 * MS, 0));
    }

    #[test]
    fn a_cpu_above_80_percent_keeps_its_long_interval() {
        for (average, factor) in [(819, 1), (820, BUSY_FACTOR)] {
            let mut rate = CpuRate::new(Nanos(0));
            assert!(rate.look(Nanos(0), CpuHabit { average, ..IDLE }, 100 * MS, 0));
            assert_eq!(rate.next(), Nanos(100 * MS * factor), "{average}");
        }
    }

    #[test]
    fn idle_shorter_than_the_cost_is_skipped() {
        let mut rate = CpuRate::new(Nanos(0));
        let short = CpuHabit { mean_idle_ns: 4_999, ..IDLE };
        assert!(!rate.look(Nanos(0), short, 100 * MS, 5_000));
        assert!(!rate.look(rate.next(), short, 100 * MS, 5_000));
        assert!(rate.look(rate.next(), IDLE, 100 * MS, 5_000));
    }

    #[test]
    fn cost_decays_by_a_hundredth_a_second() {
        let mut cost = Cost::default();
        cost.charge(100_000, Nanos(0));
        cost.charge(0, Nanos(1_000_000_000));
        assert_eq!(cost.expected_ns(), 99_000);
        cost.charge(200_000, Nanos(1_000_000_001));
        assert_eq!(cost.expected_ns(), 200_000);
    }

    fn opened(gate: &mut Gate, moved: bool, passes: u32) -> u32 {
        let mut open = 0;
        for _ in 0..passes {
            if gate.opens() {
                gate.record(moved);
                open += 1;
            }
        }
        open
    }

    #[test]
    fn passes_that_move_nothing_become_rare_and_success_brings_them_back() {
        let mut gate = Gate::default();
        assert_eq!(opened(&mut gate, true, 100), 100);
        opened(&mut gate, false, 5_000);
        assert_eq!(opened(&mut gate, false, 160), 10);
        opened(&mut gate, true, 1_000);
        assert_eq!(opened(&mut gate, true, 100), 100);
    }
}
