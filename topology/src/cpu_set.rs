// SPDX-License-Identifier: Apache-2.0
//! A set of CPUs of one kind, read and written in the kernel's list format.
//!
//! The format is that of `/sys/devices/system/cpu/online` and of cpusets: `0-3,8,10-11`, the empty text being the
//! empty set (Linux, `Documentation/admin-guide/kernel-parameters.rst`, "cpu lists"; strides `0-9:1/2` are refused).
//! Invariants: members are in ascending order, each once; a text that names an id above [`MAX_ID`] is an error, so none,
//! however hostile, makes a set of more than [`MAX_ID`]` + 1` members.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// The highest id that a list may name: far above any CPU number of Linux (`NR_CPUS` of at most 8192 on x86).
pub const MAX_ID: u32 = 65_535;

/// An ordered set of ids, such as `CpuSet<VcpuIndex>`; a set of guest CPUs cannot be taken for one of host CPUs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet<Id> {
    members: Vec<u32>,
    kind: PhantomData<Id>,
}

/// What is wrong with a text that should be a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuSetError {
    /// Nothing stands between two commas, or before the first or after the last.
    #[error("CPU list `{list}` has an empty item: remove the extra comma")]
    EmptyItem {
        /// The whole list, as given (at most its first 64 characters).
        list: String,
    },
    /// An item is neither `N` nor `N-M` with decimal numbers.
    #[error("`{item}` in a CPU list is neither a number nor a range such as 0-3: write it in decimal digits")]
    NotANumber {
        /// The item (at most its first 64 characters).
        item: String,
    },
    /// A range ends before it starts.
    #[error("range {first}-{last} in a CPU list runs backwards: write {last}-{first}")]
    Backwards {
        /// Start of the range, as given.
        first: u32,
        /// End of the range, as given.
        last: u32,
    },
    /// An id is above [`MAX_ID`].
    #[error("CPU {id} in a CPU list is above {MAX_ID}, the highest that a list may name")]
    TooHigh {
        /// The id, or `u64::MAX` when it is larger still.
        id: u64,
    },
}

impl<Id: Copy + From<u32> + Into<u32>> CpuSet<Id> {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { members: Vec::new(), kind: PhantomData }
    }

    /// The `count` lowest ids: 0 to `count - 1`.
    #[must_use]
    pub fn first(count: u32) -> Self {
        (0..count).map(Id::from).collect()
    }

    /// Adds an id; false when it was a member already.
    pub fn insert(&mut self, id: Id) -> bool {
        let id = id.into();
        match self.members.binary_search(&id) {
            Ok(_) => false,
            Err(place) => {
                self.members.insert(place, id);
                true
            }
        }
    }

    /// Whether the id is a member.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.members.binary_search(&id.into()).is_ok()
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Id> + ExactSizeIterator + '_ {
        self.members.iter().map(|&id| Id::from(id))
    }

    /// The lowest member.
    #[must_use]
    pub fn lowest(&self) -> Option<Id> {
        self.members.first().map(|&id| Id::from(id))
    }

    /// The highest member.
    #[must_use]
    pub fn highest(&self) -> Option<Id> {
        self.members.last().map(|&id| Id::from(id))
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|&id| other.contains(id)).collect()
    }

    /// The members of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|&id| !other.contains(id)).collect()
    }

    /// The members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Whether every member of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|id| other.contains(id))
    }
}

impl<Id: Copy + From<u32> + Into<u32>> Default for CpuSet<Id> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Id: Copy + From<u32> + Into<u32>> FromIterator<Id> for CpuSet<Id> {
    fn from_iter<I: IntoIterator<Item = Id>>(ids: I) -> Self {
        let mut members: Vec<u32> = ids.into_iter().map(Into::into).collect();
        members.sort_unstable();
        members.dedup();
        Self { members, kind: PhantomData }
    }
}

impl<Id> FromStr for CpuSet<Id> {
    type Err = CpuSetError;

    fn from_str(list: &str) -> Result<Self, CpuSetError> {
        let list = list.trim();
        if list.is_empty() {
            return Ok(Self { members: Vec::new(), kind: PhantomData });
        }
        let mut ranges = Vec::new();
        for item in list.split(',') {
            let item = item.trim();
            if item.is_empty() {
                return Err(CpuSetError::EmptyItem { list: excerpt(list) });
            }
            ranges.push(parse_item(item)?);
        }
        Ok(Self { members: merge(ranges), kind: PhantomData })
    }
}

fn parse_item(item: &str) -> Result<RangeInclusive<u32>, CpuSetError> {
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (parse_id(first, item)?, parse_id(last, item)?),
        None => {
            let id = parse_id(item, item)?;
            (id, id)
        }
    };
    if first > last {
        return Err(CpuSetError::Backwards { first, last });
    }
    Ok(first..=last)
}

fn parse_id(digits: &str, item: &str) -> Result<u32, CpuSetError> {
    let digits = digits.trim();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CpuSetError::NotANumber { item: excerpt(item) });
    }
    // All digits: the only way to fail is to be larger than the type.
    let id: u64 = digits.parse().unwrap_or(u64::MAX);
    u32::try_from(id).ok().filter(|&id| id <= MAX_ID).ok_or(CpuSetError::TooHigh { id })
}

/// Flattens ranges that may overlap and come in any order. Merged before they are expanded, so that a long text of
/// overlapping ranges costs no more than its own length.
fn merge(mut ranges: Vec<RangeInclusive<u32>>) -> Vec<u32> {
    ranges.sort_unstable_by_key(|range| *range.start());
    let mut members = Vec::new();
    let mut next = 0;
    for range in ranges {
        members.extend((*range.start()).max(next)..=*range.end());
        next = next.max(range.end() + 1);
    }
    members
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

impl<Id> fmt::Display for CpuSet<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.members.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                [only] => write!(f, "{separator}{only}")?,
                [] => {}
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<Id> fmt::Debug for CpuSet<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl<Id> Serialize for CpuSet<Id> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, Id> Deserialize<'de> for CpuSet<Id> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::VcpuIndex;

    fn parse(list: &str) -> Result<CpuSet<VcpuIndex>, CpuSetError> {
        list.parse()
    }

    #[test]
    fn reads_and_writes_the_kernels_list_format() {
        for (list, canonical, count) in [
            ("", "", 0),
            ("\n", "", 0),
            ("0", "0", 1),
            ("0-3,8,10-11\n", "0-3,8,10-11", 7),
            ("11,0-3,2-5,8", "0-5,8,11", 8),
            ("0,1", "0-1", 2),
            ("65535", "65535", 1),
        ] {
            let set = parse(list).unwrap();
            assert_eq!((set.to_string().as_str(), set.len()), (canonical, count), "{list:?}");
        }
    }

    #[test]
    fn every_fault_has_its_error() {
        assert!(matches!(parse("1,,2"), Err(CpuSetError::EmptyItem { .. })));
        assert!(matches!(parse("1,"), Err(CpuSetError::EmptyItem { .. })));
        for text in ["a", "-1", "1-", "0x3", "1-2-3", "0-9:1/2", "+1", "all"] {
            assert!(matches!(parse(text), Err(CpuSetError::NotANumber { .. })), "{text}");
        }
        assert_eq!(parse("7-3"), Err(CpuSetError::Backwards { first: 7, last: 3 }));
        assert_eq!(parse("0-4294967295"), Err(CpuSetError::TooHigh { id: 4_294_967_295 }));
        assert_eq!(parse("65536"), Err(CpuSetError::TooHigh { id: 65_536 }));
        assert_eq!(parse("99999999999999999999999"), Err(CpuSetError::TooHigh { id: u64::MAX }));
    }

    #[test]
    fn many_overlapping_ranges_make_one_small_set() {
        let list = vec!["0-65535"; 10_000].join(",");
        assert_eq!(parse(&list).unwrap().len(), 65_536);
    }

    #[test]
    fn is_json_as_text() {
        let set: CpuSet<VcpuIndex> = serde_json::from_str("\"0-2\"").unwrap();
        assert_eq!(serde_json::to_string(&set).unwrap(), "\"0-2\"");
        assert!(serde_json::from_str::<CpuSet<VcpuIndex>>("\"2-0\"").is_err());
    }

    proptest! {
        #[test]
        fn parse_of_print_is_the_set(ids in proptest::collection::vec(0u32..200, 0..60)) {
            let set: CpuSet<VcpuIndex> = ids.into_iter().map(VcpuIndex).collect();
            prop_assert_eq!(parse(&set.to_string()).unwrap(), set);
        }

        #[test]
        fn no_text_panics(list in "[0-9,-]{0,40}") {
            let _ = parse(&list);
        }

        #[test]
        fn difference_and_intersection_partition_the_set(
            a in proptest::collection::vec(0u32..50, 0..40), b in proptest::collection::vec(0u32..50, 0..40),
        ) {
            let a: CpuSet<VcpuIndex> = a.into_iter().map(VcpuIndex).collect();
            let b: CpuSet<VcpuIndex> = b.into_iter().map(VcpuIndex).collect();
            let (both, only) = (a.intersection(&b), a.difference(&b));
            prop_assert!(both.is_subset(&b) && only.intersection(&b).is_empty());
            prop_assert_eq!(both.union(&only), a);
        }
    }
}
