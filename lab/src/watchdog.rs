// SPDX-License-Identifier: Apache-2.0
//! Tells a lab host that hangs from a guest that fails, from the outside.
//!
//! Place in the flow: `session` asks it on every look at the running emulator. Invariant: time and heartbeats are
//! handed in, so the same observations give the same verdict; the deadline is looked at first, nothing outlives it.
//!
//! The lab host writes one line a second to a serial port of its own. A guest that hangs leaves that beat alone, and the run
//! ends at its deadline; a lab host that hangs stops beating, and the run can be repeated long before. A lab host that took
//! its clock's rate wrong beats too fast; every limit that something inside has of its own would pass too early.

use std::time::Duration;

/// Beats over which the clock is looked at.
const CLOCK_BEATS: u64 = 20;
/// A second of the lab host's is never shorter than a real one, whatever the load: only a wrong clock beats twice as fast.
const CLOCK_FAST: u32 = 2;

/// How long the lab host may take or be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The whole attempt, from its start.
    pub deadline: Duration,
    /// From the start to the first heartbeat.
    pub boot: Duration,
    /// Between two heartbeats. Generous: many spinning vCPUs on one emulated processor delay the beat by seconds.
    pub silence: Duration,
}

/// What the watchdog says after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Look again later.
    Alive,
    /// The attempt used up its time although the lab host is alive: what runs inside is at fault.
    DeadlinePassed,
    /// The lab host never said it was ready.
    NeverReady {
        /// Time waited.
        waited: Duration,
    },
    /// The heartbeat stopped.
    Silent {
        /// Time since the last beat.
        silent: Duration,
    },
    /// Its clock is wrong.
    ClockTooFast {
        /// Seconds that passed inside.
        inside: u64,
        /// Time that passed outside.
        outside: Duration,
    },
}

/// Watches one attempt.
#[derive(Debug)]
pub struct Watchdog {
    limits: Limits,
    beats: u64,
    first_beat: Option<Duration>,
    last_beat: Option<Duration>,
}

impl Watchdog {
    /// A watchdog for an attempt that starts now.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, beats: 0, first_beat: None, last_beat: None }
    }

    /// One look: `now` counts from the start of the attempt, `beats` is the number of beats so far.
    pub fn look(&mut self, now: Duration, beats: u64) -> Verdict {
        if beats > self.beats {
            self.beats = beats;
            self.first_beat.get_or_insert(now);
            self.last_beat = Some(now);
        }
        if now >= self.limits.deadline {
            return Verdict::DeadlinePassed;
        }
        let outside = now.saturating_sub(self.first_beat.unwrap_or(now));
        // The first beat tells that the lab host is ready, a second passes before the next.
        let inside = self.beats.saturating_sub(1);
        if inside >= CLOCK_BEATS && Duration::from_secs(inside) > outside * CLOCK_FAST {
            return Verdict::ClockTooFast { inside, outside };
        }
        match self.last_beat {
            None if now >= self.limits.boot => Verdict::NeverReady { waited: now },
            Some(beat) if now.saturating_sub(beat) >= self.limits.silence => {
                Verdict::Silent { silent: now.saturating_sub(beat) }
            }
            _ => Verdict::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { deadline: Duration::from_secs(100), boot: Duration::from_secs(30), silence: Duration::from_secs(20) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_beating_lab_host_runs_until_its_deadline_and_no_longer() {
        let mut dog = Watchdog::new(LIMITS);
        for second in 0..100 {
            assert_eq!(dog.look(at(second), second), Verdict::Alive, "second {second}");
        }
        assert_eq!(dog.look(at(100), 100), Verdict::DeadlinePassed);
    }

    #[test]
    fn a_lab_host_that_never_comes_up_is_told_after_the_boot_limit() {
        let mut dog = Watchdog::new(LIMITS);
        assert_eq!(dog.look(at(29), 0), Verdict::Alive);
        assert_eq!(dog.look(at(30), 0), Verdict::NeverReady { waited: at(30) });
    }

    #[test]
    fn silence_counts_from_the_last_beat() {
        let mut dog = Watchdog::new(LIMITS);
        assert_eq!(dog.look(at(25), 10), Verdict::Alive);
        assert_eq!(dog.look(at(44), 10), Verdict::Alive);
        assert_eq!(dog.look(at(45), 10), Verdict::Silent { silent: at(20) });
    }

    #[test]
    fn a_late_beat_is_still_a_beat() {
        let mut dog = Watchdog::new(LIMITS);
        assert_eq!(dog.look(at(10), 1), Verdict::Alive);
        assert_eq!(dog.look(at(50), 2), Verdict::Alive);
        assert_eq!(dog.look(at(69), 2), Verdict::Alive);
    }

    #[test]
    fn a_clock_that_runs_twice_as_fast_is_told_after_twenty_beats() {
        let mut dog = Watchdog::new(LIMITS);
        for beat in 0..=20 {
            assert_eq!(dog.look(at(5) + Duration::from_millis(400) * beat, u64::from(beat)), Verdict::Alive);
        }
        let verdict = dog.look(at(5) + Duration::from_millis(8400), 21);
        assert_eq!(verdict, Verdict::ClockTooFast { inside: 20, outside: at(8) });
    }

    #[test]
    fn at_the_deadline_the_run_ends_even_when_the_lab_host_is_silent_too() {
        let mut dog = Watchdog::new(LIMITS);
        assert_eq!(dog.look(at(1000), 0), Verdict::DeadlinePassed);
    }
}
