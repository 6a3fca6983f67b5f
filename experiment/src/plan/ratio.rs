// SPDX-License-Identifier: Apache-2.0
//! An overcommit ratio: vCPUs of all guests per host CPU they may use.
//!
//! Invariant: a ratio is kept in thousandths, so that two that are written alike are equal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// vCPUs per host CPU, in thousandths: `Ratio(1500)` is 1.5×.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(u32);

impl Ratio {
    /// Least and greatest ratio that a plan may ask for.
    pub const RANGE: (f64, f64) = (0.1, 64.0);

    /// The ratio, if it is within [`Ratio::RANGE`] and has at most three decimals.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        let thousandths = (value * 1000.0).round();
        let fits = (Self::RANGE.0..=Self::RANGE.1).contains(&value) && (thousandths / 1000.0 - value).abs() < 1e-9;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number within the range")]
        fits.then_some(Self(thousandths as u32))
    }

    /// The ratio as a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// vCPUs on so many host CPUs, if that is a whole number.
    #[must_use]
    pub fn vcpus_on(self, host_cpus: u32) -> Option<u32> {
        let thousandths = u64::from(self.0) * u64::from(host_cpus);
        (thousandths % 1000 == 0).then(|| u32::try_from(thousandths / 1000).ok()).flatten()
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_vcpus_per_host_cpu() {
        let ratio = |value| Ratio::new(value).unwrap();
        assert_eq!(ratio(1.5).vcpus_on(2), Some(3));
        assert_eq!(ratio(1.5).vcpus_on(3), None);
        assert_eq!(ratio(8.0).vcpus_on(2), Some(16));
        assert_eq!((ratio(1.5).to_string(), ratio(4.0).to_string()), ("1.5x".to_owned(), "4x".to_owned()));
        for bad in [0.0, -1.0, 65.0, f64::NAN, f64::INFINITY, 1.0 / 3.0] {
            assert_eq!(Ratio::new(bad), None, "{bad}");
        }
    }
}
