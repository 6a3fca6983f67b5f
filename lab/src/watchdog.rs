// SPDX-License-Identifier: Apache-2.0
//! Tells a lab host that hangs from a guest that fails, from the outside.
//!
//! Place in the flow: `session` asks it on every look at the running emulator. Invariant: time and heartbeats are
//! handed in, so the same observations give the same verdict; the deadline is looked at first, nothing outlives it.
//!
//! The lab host writes one line a second to a serial port of its own. A guest that hangs leaves that beat alone, and the run
//! ends at its deadline; a lab host that hangs stops beating, and the run can be repeated long before.

use std::time::Duration;

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
}

/// Watches one attempt.
#[derive(Debug)]
pub struct Watchdog {
    limits: Limits,
    beats_bytes: u64,
    last_beat: Option<Duration>,
}

impl Watchdog {
    /// A watchdog for an attempt that starts now.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, beats_bytes: 0, last_beat: None }
    }

    /// One look: `now` counts from the start of the attempt, `beats_bytes` is the length of the heartbeat stream so far.
    pub fn look(&mut self, now: Duration, beats_bytes: u64) -> Verdict {
        if beats_bytes > self.beats_bytes {
            self.beats_bytes = beats_bytes;
            self.last_beat = Some(now);
        }
        if now >= self.limits.deadline {
            return Verdict::DeadlinePassed;
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
    fn at_the_deadline_the_run_ends_even_when_the_lab_host_is_silent_too() {
        let mut dog = Watchdog::new(LIMITS);
        assert_eq!(dog.look(at(1000), 0), Verdict::DeadlinePassed);
    }
}
