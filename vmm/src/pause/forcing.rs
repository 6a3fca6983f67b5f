// SPDX-License-Identifier: Apache-2.0
//! How often PAUSE exits force a vCPU out of the guest: every K-th, for as long as the kernel's own yields fail.
//!
//! Each PAUSE exit has the kernel yield to somebody (`kvm_vcpu_on_spin`); where that works, an exit forced on top costs
//! more than it brings. It shows in the thread: a yield that worked switched it. So a forced exit that finds at least one
//! switch for every K PAUSE exits since the last one doubles the number of PAUSE exits to the next, and one that finds
//! fewer takes it back to K. Pure. Invariant: between K and K times [`MOST`].

/// Longest distance, in multiples of K: with K = 8 a forced exit in 32768 PAUSE exits, some 50 ms of them.
const MOST: u64 = 4096;

/// The distance of the forced exits of one vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forcing {
    base: u64,
    period: u64,
    last: Seen,
}

/// What a thread has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Times it was switched off its CPU, but for its own acts.
    pub(super) switches: u64,
    /// PAUSE exits of its vCPU.
    pub(super) pauses: u64,
}

/// What a forced exit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: a new period has the event overflow at the very next PAUSE exit (kernel/events/core.c,
    /// `__perf_event_period` takes what is left of the old one to be nothing), before the kernel had its K attempts.
    TooSoon,
    /// The kernel's yields work: nothing is to be done.
    KernelHelps,
    /// They do not: the policy is to be asked.
    KernelFails,
}

impl Forcing {
    /// Every `base`-th PAUSE exit, of a thread that has been switched `switches` times before the first.
    pub(super) const fn new(base: u64, switches: u64) -> Self {
        Self { base, period: base, last: Seen { switches, pauses: 0 } }
    }

    /// PAUSE exits to the next forced exit.
    pub(super) const fn period(&self) -> u64 {
        self.period
    }

    /// Takes in a forced exit, with what the thread has seen up to it.
    pub(super) const fn forced(&mut self, now: Seen) -> Verdict {
        let pauses = now.pauses.saturating_sub(self.last.pauses);
        if pauses < self.base {
            return Verdict::TooSoon;
        }
        let switches = now.switches.saturating_sub(self.last.switches);
        self.last = now;
        if switches.saturating_mul(self.base) >= pauses {
            let longest = self.base.saturating_mul(MOST);
            let doubled = self.period.saturating_mul(2);
            self.period = if doubled < longest { doubled } else { longest };
            Verdict::KernelHelps
        } else {
            self.period = self.base;
            Verdict::KernelFails
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn where_the_kernel_helps_it_is_left_alone_ever_longer() {
        let (mut forcing, mut seen) = (Forcing::new(8, 99), Seen { switches: 100, pauses: 8 });
        assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelHelps, 16));
        for period in [16, 32, 64] {
            seen = Seen { switches: seen.switches + period / 8, pauses: seen.pauses + period };
            assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelHelps, period * 2));
        }
        seen = Seen { switches: seen.switches + 7, pauses: seen.pauses + 64 };
        assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelFails, 8), "64 exits, 7 switches");
        seen.pauses += 8;
        assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelFails, 8));
    }

    #[test]
    fn the_overflow_that_a_new_period_brings_says_nothing() {
        let mut forcing = Forcing::new(8, 0);
        assert_eq!(forcing.forced(Seen { switches: 1, pauses: 8 }), Verdict::KernelHelps);
        assert_eq!((forcing.forced(Seen { switches: 1, pauses: 9 }), forcing.period()), (Verdict::TooSoon, 16));
        // Counted from the last one that said something: 3 switches in 17 exits.
        assert_eq!((forcing.forced(Seen { switches: 4, pauses: 25 }), forcing.period()), (Verdict::KernelHelps, 32));
    }

    proptest! {
        #[test]
        fn the_distance_stays_in_its_bounds(
            base in 1_u64..1_000_000,
            steps in proptest::collection::vec((0_u64..100, 0_u64..10_000_000), 0..64),
        ) {
            let (mut forcing, mut seen) = (Forcing::new(base, 0), Seen::default());
            for (switches, pauses) in steps {
                seen = Seen { switches: seen.switches + switches, pauses: seen.pauses + pauses };
                forcing.forced(seen);
                prop_assert!((base..=base * MOST).contains(&forcing.period()));
            }
        }
    }
}
