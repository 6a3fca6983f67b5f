// SPDX-License-Identifier: Apache-2.0
//! How long waits were, with a bounded relative error.
//!
//! 8 buckets per power of two, so a bucket is at most an eighth of its value wide. Written by one CPU without locks,
//! read by another when the run is over. Invariant: bucket_of is monotonic and floor_of is its smallest pre-image.

use core::sync::atomic::{AtomicU32, Ordering};

const SUB_BITS: u32 = 3;
const SUB: u64 = 1 << SUB_BITS;
/// Buckets for all of 0..2^48; longer waits count as the longest.
pub const BUCKETS: usize = 46 * SUB as usize;

/// Counts per bucket.
#[repr(C)]
pub struct Histogram([AtomicU32; BUCKETS]);

/// The bucket of a value.
#[inline(always)]
pub const fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) & (SUB - 1);
    let bucket = ((exponent - SUB_BITS + 1) as usize) * SUB as usize + sub as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The smallest value of a bucket.
pub const fn floor_of(bucket: usize) -> u64 {
    let (group, sub) = (bucket as u64 / SUB, bucket as u64 % SUB);
    if group == 0 { sub } else { (SUB + sub) << (group - 1) }
}

impl Histogram {
    /// An empty one.
    #[cfg(test)]
    pub const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }

    /// Counts a value. For one writer: not an atomic increment.
    #[inline(always)]
    pub fn record(&self, value: u64) {
        if let Some(count) = self.0.get(bucket_of(value)) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Forgets everything.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| u64::from(c.load(Ordering::Relaxed))).sum()
    }

    fn at(&self, bucket: usize) -> u64 {
        self.0.get(bucket).map_or(0, |c| u64::from(c.load(Ordering::Relaxed)))
    }
}

/// The smallest bucket floor that at least `per_mille` of all recorded values do not exceed by more than a bucket;
/// `None` of nothing.
pub fn quantile<'a>(all: impl Iterator<Item = &'a Histogram> + Clone, per_mille: u64) -> Option<u64> {
    let count_at = |bucket| all.clone().map(|h| h.at(bucket)).sum::<u64>();
    let total: u64 = (0..BUCKETS).map(count_at).sum();
    let rank = (total * per_mille).div_ceil(1000).max(1);
    let mut below = 0;
    for bucket in 0..BUCKETS {
        below += count_at(bucket);
        if below >= rank {
            return Some(floor_of(bucket));
        }
    }
    None
}
