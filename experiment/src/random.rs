// SPDX-License-Identifier: Apache-2.0
//! Chance by seed: the same seed is the same order in every version and on every machine.
//!
//! xoshiro256++ (Blackman, Vigna: Scrambled Linear Pseudorandom Number Generators, 2021), whose stream is fixed by its
//! definition. Invariant: numbers below a bound are unbiased.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A source of chance.
pub(crate) struct Chance(Xoshiro256PlusPlus);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        if bound < 2 {
            return 0;
        }
        let bound = bound as u64;
        // Numbers beyond the last whole multiple of the bound would favour small results.
        let past = u64::MAX - u64::MAX % bound;
        loop {
            let number = self.0.next_u64();
            if number < past {
                return usize::try_from(number % bound).unwrap_or(0);
            }
        }
    }

    /// Any order of `items` with the same probability (Fisher, Yates; Durstenfeld 1964).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_comes_about_as_often() {
        let mut chance = Chance::new(7);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [1, 2, 3];
            chance.shuffle(&mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        // 1000 each, standard deviation 29.
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_seed_fixes_the_stream() {
        // xoshiro256++ seeded with 1 through SplitMix64: the stream must not change between versions.
        let mut chance = Chance::new(1);
        let numbers: Vec<usize> = (0..8).map(|_| chance.below(1000)).collect();
        let mut again = Chance::new(1);
        assert_eq!(numbers, (0..8).map(|_| again.below(1000)).collect::<Vec<_>>());
        assert_eq!((again.below(0), again.below(1)), (0, 0));
    }
}
