// SPDX-License-Identifier: Apache-2.0
//! Time as the policies see it: nanoseconds that the caller read, never a clock of their own.
//!
//! Invariant: comparisons survive a counter that wraps. A "next" that silently moved into the past is how the kernel's
//! newly-idle balancer came to run far more often than meant (seed newidle-rate-limit).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point on the caller's monotonic clock, in nanoseconds. Where zero lies is the caller's affair.
///
/// Two points may be compared only when they are less than half the range apart (292 years), as with the kernel's
/// `time_after`; hence no `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The point `ns` nanoseconds later.
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.wrapping_add(ns))
    }

    /// Nanoseconds since `earlier`, and zero if `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        let ns = self.0.wrapping_sub(earlier.0);
        if ns > u64::MAX / 2 { 0 } else { ns }
    }

    /// Whether this point lies before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) > u64::MAX / 2
    }

    /// The later of two points.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_distance_survive_a_wrap() {
        let late = Nanos(u64::MAX - 5);
        let next = late.after(10);
        assert_eq!(next, Nanos(4));
        assert!(late.is_before(next));
        assert!(!next.is_before(late));
        assert_eq!(next.since(late), 10);
        assert_eq!(late.since(next), 0);
        assert_eq!(late.later(next), next);
        assert!(!late.is_before(late));
    }
}
