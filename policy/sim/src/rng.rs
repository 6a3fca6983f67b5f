// SPDX-License-Identifier: Apache-2.0
//! The only source of chance: xoshiro256** started by SplitMix64 (Blackman and Vigna, 2018), from one seed handed in.
//!
//! Invariant: integer arithmetic alone, so that a seed means the same run on every machine.

/// A stream of random numbers. Every task has its own, so that one arm of a comparison sees the same guest as another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Rng {
    /// The stream number `stream` of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut start = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        Self { state: std::array::from_fn(|_| split_mix(&mut start)) }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, each equally likely up to one part in 2^64 / `bound`; zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.bits(), bound)
    }

    /// A duration from half the mean to one and a half times the mean, each equally likely.
    pub fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean.saturating_add(1))
    }

    /// An exponentially distributed duration, by von Neumann's method: comparisons of uniform numbers and no logarithm,
    /// which machines do not agree on to the last bit.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0_u64;
        loop {
            let first = self.bits();
            let (mut last, mut run) = (first, 1_u32);
            loop {
                let next = self.bits();
                if next >= last {
                    break;
                }
                last = next;
                run += 1;
            }
            if run % 2 == 1 {
                return whole.saturating_mul(mean).saturating_add(scale(first, mean));
            }
            whole += 1;
        }
    }
}

/// `bound` times the fraction that 64 random bits are.
fn scale(bits: u64, bound: u64) -> u64 {
    let product = u128::from(bits) * u128::from(bound);
    u64::try_from(product >> 64).unwrap_or(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_everywhere() {
        let mut rng = Rng::new(1, 0);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        let mut again = Rng::new(1, 0);
        assert_eq!(first, (0..3).map(|_| again.bits()).collect::<Vec<_>>());
        assert_ne!(first[0], Rng::new(1, 1).bits());
        // The published first output of SplitMix64 for seed 0.
        assert_eq!(split_mix(&mut 0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn durations_have_the_mean_that_was_asked_for() {
        let mut rng = Rng::new(7, 3);
        let mean = |draw: &mut dyn FnMut(u64) -> u64| (0..100_000).map(|_| draw(10_000)).sum::<u64>() / 100_000;
        assert!(mean(&mut |m| rng.exponential(m)).abs_diff(10_000) < 150);
        assert!(mean(&mut |m| rng.around(m)).abs_diff(10_000) < 50);
        assert_eq!(rng.below(0), 0);
    }
}
