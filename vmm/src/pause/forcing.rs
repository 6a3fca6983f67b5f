// SPDX-License-Identifier: Apache-2.0
//! How often PAUSE exits force a vCPU out of the guest: every K-th, for as long as that brings what the kernel does not.
//!
//! Each PAUSE exit has the kernel yield to somebody (`kvm_vcpu_on_spin`); where that works, an exit forced on top costs
//! more than it brings. It shows in the thread: a yield that worked switched it. So a forced exit is *useful* if fewer than
//! one of K PAUSE exits since the last one switched the thread, and what was then done about it did. Each useful one brings
//! the next four times nearer, each other puts it four times farther away. What that costs is bounded whatever the guest
//! and the kernel do: [`STEPS`] exits in vain at first, one for each useful one, and one in K times [`MOST`] PAUSE exits.
//! Pure. Invariant: between K and K times [`MOST`].

/// By this the distance grows and shrinks.
const STEP: u64 = 4;
/// From K to the longest distance.
const STEPS: u32 = 6;
/// Longest distance, in multiples of K: with K = 8 a forced exit in 32768 PAUSE exits, some 50 ms of them.
const MOST: u64 = STEP.pow(STEPS);

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
    /// They do not: the policy is to be asked, and [`Forcing::settled`] is to be told what came of it.
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
            self.settled(false);
            Verdict::KernelHelps
        } else {
            Verdict::KernelFails
        }
    }

    /// Takes in what came of an exit that found the kernel to fail: whether the act about it let somebody run.
    pub(super) const fn settled(&mut self, helped: bool) {
        let longest = self.base.saturating_mul(MOST);
        let (nearer, farther) = (self.period / STEP, self.period.saturating_mul(STEP));
        self.period = match helped {
            true if nearer > self.base => nearer,
            true => self.base,
            false if farther < longest => farther,
            false => longest,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn where_the_kernel_helps_it_is_left_alone_ever_longer() {
        let (mut forcing, mut seen) = (Forcing::new(8, 99), Seen { switches: 100, pauses: 8 });
        assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelHelps, 32));
        for period in [32, 128, 512] {
            seen = Seen { switches: seen.switches + period / 8, pauses: seen.pauses + period };
            assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelHelps, period * 4));
        }
        seen = Seen { switches: seen.switches + 7, pauses: seen.pauses + 64 };
        assert_eq!((forcing.forced(seen), forcing.period()), (Verdict::KernelFails, 2048), "64 exits, 7 switches");
    }

    #[test]
    fn what_helps_comes_nearer_and_what_does_not_goes_away() {
        let mut forcing = Forcing::new(8, 0);
        let mut seen = Seen::default();
        let mut fails = |forcing: &mut Forcing, helped: bool| {
            seen.pauses += forcing.period();
            assert_eq!(forcing.forced(seen), Verdict::KernelFails);
            forcing.settled(helped);
            forcing.period()
        };
        assert_eq!([false, false, true, true, true].map(|helped| fails(&mut forcing, helped)), [32, 128, 32, 8, 8]);
    }

    #[test]
    fn the_overflow_that_a_new_period_brings_says_nothing() {
        let mut forcing = Forcing::new(8, 0);
        assert_eq!(forcing.forced(Seen { switches: 1, pauses: 8 }), Verdict::KernelHelps);
        assert_eq!((forcing.forced(Seen { switches: 1, pauses: 9 }), forcing.period()), (Verdict::TooSoon, 32));
        // Counted from the last one that said something: 3 switches in 17 exits.
        assert_eq!((forcing.forced(Seen { switches: 4, pauses: 25 }), forcing.period()), (Verdict::KernelHelps, 128));
    }

    proptest! {
        #[test]
        fn exits_in_vain_are_bounded_by_the_useful_ones(
            base in 1_u64..1_000,
            helps in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..400),
        ) {
            let (mut forcing, mut seen, mut useful, mut in_vain) = (Forcing::new(base, 0), Seen::default(), 0, 0);
            for (by_kernel, by_us) in helps {
                seen.pauses += forcing.period();
                seen.switches += if by_kernel { forcing.period() } else { 0 };
                let fails = forcing.forced(seen) == Verdict::KernelFails;
                if fails {
                    forcing.settled(by_us);
                }
                *(if fails && by_us { &mut useful } else { &mut in_vain }) += 1;
                prop_assert!((base..=base * MOST).contains(&forcing.period()));
                prop_assert!(in_vain <= u64::from(STEPS) + useful + seen.pauses / (base * MOST));
            }
        }
    }
}
