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
    switches: Option<u64>,
}

/// What a forced exit says, and after how many PAUSE exits the next is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The kernel's yields work: nothing is to be done.
    KernelHelps(u64),
    /// They do not: the policy is to be asked.
    KernelFails(u64),
}

impl Forcing {
    /// Every `base`-th PAUSE exit.
    pub(super) const fn new(base: u64) -> Self {
        Self { base, period: base, switches: None }
    }

    /// Takes in a forced exit. `switches` is how often the thread was switched so far, but for its own acts.
    pub(super) const fn forced(&mut self, switches: u64) -> Verdict {
        let since = match self.switches {
            Some(before) => switches.saturating_sub(before),
            None => 0,
        };
        self.switches = Some(switches);
        if since.saturating_mul(self.base) >= self.period {
            let longest = self.base.saturating_mul(MOST);
            let doubled = self.period.saturating_mul(2);
            self.period = if doubled < longest { doubled } else { longest };
            Verdict::KernelHelps(self.period)
        } else {
            self.period = self.base;
            Verdict::KernelFails(self.period)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn where_the_kernel_helps_it_is_left_alone_ever_longer() {
        let (mut forcing, mut switches) = (Forcing::new(8), 100);
        assert_eq!(forcing.forced(switches), Verdict::KernelFails(8), "nothing is known yet");
        for period in [16, 32, 64] {
            switches += period / 2 / 8;
            assert_eq!(forcing.forced(switches), Verdict::KernelHelps(period));
        }
        assert_eq!(forcing.forced(switches + 7), Verdict::KernelFails(8), "64 exits and only 7 switches");
        assert_eq!(forcing.forced(switches + 7), Verdict::KernelFails(8));
    }

    proptest! {
        #[test]
        fn the_distance_stays_in_its_bounds(base in 1_u64..1_000_000, steps in proptest::collection::vec(0_u64..100, 0..64)) {
            let (mut forcing, mut switches) = (Forcing::new(base), 0);
            for step in steps {
                switches += step;
                let (Verdict::KernelHelps(period) | Verdict::KernelFails(period)) = forcing.forced(switches);
                prop_assert!((base..=base * MOST).contains(&period));
            }
        }
    }
}
