// SPDX-License-Identifier: Apache-2.0
//! How long waits were: counts by powers of two, each in four parts, so that a percentile is right to a quarter.

/// A histogram of durations in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Self::BUCKETS] }
    }
}

impl Histogram {
    const BUCKETS: usize = 256;

    /// Counts one duration.
    pub fn add(&mut self, ns: u64) {
        self.counts[Self::bucket(ns)] += 1;
    }

    fn bucket(ns: u64) -> usize {
        if ns < 4 {
            return usize::try_from(ns).unwrap_or(0);
        }
        let top = 63 - ns.leading_zeros();
        let quarter = (ns >> (top - 2)) & 3;
        (top as usize - 1) * 4 + usize::try_from(quarter).unwrap_or(0)
    }

    /// Upper end of a bucket.
    fn end(bucket: usize) -> u64 {
        if bucket < 4 {
            return bucket as u64;
        }
        let (top, quarter) = (bucket / 4 + 1, (bucket % 4) as u64);
        let width = 1_u64 << (top - 2);
        (4 + quarter).saturating_mul(width).saturating_add(width - 1)
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The duration that `per_1000` of a thousand do not exceed, to a quarter; zero if there are none.
    #[must_use]
    pub fn percentile(&self, per_1000: u64) -> u64 {
        let wanted = (self.count() * per_1000).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::end(bucket);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_quarter() {
        let mut waits = Histogram::default();
        for ns in 1..=1000 {
            waits.add(ns * 1000);
        }
        for (per_1000, exact) in [(500, 500_000), (990, 990_000), (1000, 1_000_000)] {
            let got = waits.percentile(per_1000);
            assert!(got >= exact && got <= exact + exact / 4, "{per_1000}: {got}");
        }
        assert_eq!((waits.count(), Histogram::default().percentile(990)), (1000, 0));
    }

    #[test]
    fn every_duration_has_a_bucket_that_holds_it() {
        for ns in (0..64).map(|bit| 1_u64 << bit).chain([0, 3, 5, 1023, u64::MAX]) {
            let bucket = Histogram::bucket(ns);
            assert!(Histogram::end(bucket) >= ns && (bucket == 0 || Histogram::end(bucket - 1) < ns), "{ns}");
        }
    }
}
