// SPDX-License-Identifier: Apache-2.0
//! How many guests of which size make up a ratio on so many host CPUs.
//!
//! Invariant: the vCPUs of all guests together are the ratio times the host CPUs, exactly; a ratio that cannot be had is
//! refused and never rounded.

use serde::{Deserialize, Serialize};

use super::Ratio;

/// Equal guests that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSet {
    /// How many.
    pub count: u32,
    /// vCPUs of each.
    pub vcpus: u32,
    /// NUMA nodes of each.
    pub nodes: u32,
    /// Memory of each, in MiB.
    pub memory_mib: u32,
}

/// Memory that a monitor takes beside its guest's, in MiB: what is planned with, not what is used.
pub const MONITOR_MIB: u64 = 16;

impl GuestSet {
    /// vCPUs of all guests.
    #[must_use]
    pub const fn all_vcpus(self) -> u32 {
        self.count * self.vcpus
    }

    /// Memory of all guests and their monitors, in MiB.
    #[must_use]
    pub const fn all_mib(self) -> u64 {
        self.count as u64 * (self.memory_mib as u64 + MONITOR_MIB)
    }
}

/// What a plan says about guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// So many guests; their vCPUs follow from the ratio.
    Count(u32),
    /// Guests of so many vCPUs; their number follows from the ratio.
    Vcpus(u32),
}

impl Size {
    /// Guests and vCPUs of each at a ratio, or why it cannot be had.
    pub(super) fn at(self, ratio: Ratio, host_cpus: u32) -> Result<(u32, u32), String> {
        let all = ratio.vcpus_on(host_cpus).filter(|all| *all > 0);
        let all = all.ok_or_else(|| format!("{ratio} of {host_cpus} host CPUs is no whole number of vCPUs"))?;
        let (what, by) = match self {
            Self::Count(count) => ("guests", count),
            Self::Vcpus(vcpus) => ("vCPUs a guest", vcpus),
        };
        if all % by != 0 {
            return Err(format!(
                "{ratio} of {host_cpus} host CPUs is {all} vCPUs, which {by} {what} do not divide evenly"
            ));
        }
        Ok(match self {
            Self::Count(count) => (count, all / count),
            Self::Vcpus(vcpus) => (all / vcpus, vcpus),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ratio_is_met_exactly_or_refused() {
        let ratio = |value| Ratio::new(value).unwrap();
        assert_eq!(Size::Count(1).at(ratio(4.0), 2), Ok((1, 8)));
        assert_eq!(Size::Vcpus(2).at(ratio(4.0), 2), Ok((4, 2)));
        assert_eq!(Size::Count(3).at(ratio(1.5), 2), Ok((3, 1)));
        let refused = Size::Vcpus(2).at(ratio(1.5), 2).unwrap_err();
        assert_eq!(refused, "1.5x of 2 host CPUs is 3 vCPUs, which 2 vCPUs a guest do not divide evenly");
        assert!(Size::Count(1).at(ratio(1.5), 1).unwrap_err().contains("no whole number"));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_the_ratio(
            tenths in 1u32..640, cpus in 1u32..256, by in 1u32..64, is_count in any::<bool>()
        ) {
            let ratio = Ratio::new(f64::from(tenths) / 10.0).unwrap();
            let size = if is_count { Size::Count(by) } else { Size::Vcpus(by) };
            if let Ok((count, vcpus)) = size.at(ratio, cpus) {
                prop_assert!(count > 0 && vcpus > 0);
                prop_assert_eq!(u64::from(count * vcpus) * 10, u64::from(tenths) * u64::from(cpus));
            }
        }
    }
}
