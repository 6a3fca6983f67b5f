// SPDX-License-Identifier: Apache-2.0
//! A ledger that is looked at while the vCPU runs: what is told once is never taken back.
//!
//! Pure. The kernel books some times late: a wait for a CPU when it ends, guest time at the scheduler's tick. Until then they
//! look like something else, so that a term of a later reading can be less than that of an earlier one. A counter that
//! shrinks is worthless to whoever takes differences; here the growth of wall time is divided among the terms that grew.
//! Invariant: no term shrinks, and the terms add up to the wall time.

use super::Ledger;

/// What was told of a vCPU's ledger so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growing(Ledger);

impl Growing {
    /// Takes in a reading that was made after `wall_ns` of wall time, and gives what is told of it.
    pub fn grow(&mut self, seen: &Ledger, wall_ns: u64) -> Ledger {
        let growth = wall_ns.saturating_sub(self.0.total_ns());
        let told = self.0.terms().map(|(_, ns)| ns);
        let seen = seen.terms().map(|(_, ns)| ns);
        let wanted: [u64; 6] = std::array::from_fn(|term| seen[term].saturating_sub(told[term]));
        let sum: u128 = wanted.iter().map(|ns| u128::from(*ns)).sum();
        // At most `growth`, which is a u64.
        let share = |ns: u64| match sum > u128::from(growth) {
            true => u64::try_from(u128::from(ns) * u128::from(growth) / sum).unwrap_or(0),
            false => ns,
        };
        let mut grown: [u64; 6] = std::array::from_fn(|term| told[term].saturating_add(share(wanted[term])));
        let total = grown.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        // What nobody claims is the remainder, as in every ledger.
        grown[KERNEL] = grown[KERNEL].saturating_add(wall_ns.saturating_sub(total));
        let [guest_ns, halted_ns, polling_ns, waiting_ns, kernel_ns, user_ns] = grown;
        self.0 = Ledger { guest_ns, halted_ns, polling_ns, waiting_ns, kernel_ns, user_ns };
        self.0
    }
}

/// Place of `kernel` among [`Ledger::terms`].
const KERNEL: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_remainder_is_kernel_time() {
        assert_eq!(Ledger::default().terms()[KERNEL].0, "kernel");
    }

    #[test]
    fn a_wait_that_is_booked_late_grows_from_then_on() {
        let mut told = Growing::default();
        let early = Ledger { guest_ns: 5 * MS, kernel_ns: 15 * MS, ..Ledger::default() };
        assert_eq!(told.grow(&early, 20 * MS), early);
        let late = Ledger { guest_ns: 6 * MS, waiting_ns: 19 * MS, ..Ledger::default() };
        let second = told.grow(&late, 25 * MS);
        assert_eq!((second.kernel_ns, second.total_ns()), (15 * MS, 25 * MS));
        assert!(second.waiting_ns > 4 * MS, "{second:?}");
    }

    proptest! {
        #[test]
        fn no_term_shrinks_and_the_terms_add_up_to_wall_time(
            readings in prop::collection::vec((prop::array::uniform6(0..1000 * MS), 0..500 * MS), 1..20),
        ) {
            let (mut told, mut before, mut wall) = (Growing::default(), Ledger::default(), 0);
            for ([guest_ns, halted_ns, polling_ns, waiting_ns, kernel_ns, user_ns], passed) in readings {
                wall += passed;
                let seen = Ledger { guest_ns, halted_ns, polling_ns, waiting_ns, kernel_ns, user_ns };
                let now = told.grow(&seen, wall);
                prop_assert_eq!(now.total_ns(), wall);
                for ((name, new), (_, old)) in now.terms().into_iter().zip(before.terms()) {
                    prop_assert!(new >= old, "{}", name);
                }
                before = now;
            }
        }
    }
}
