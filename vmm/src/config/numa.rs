// SPDX-License-Identifier: Apache-2.0
//! NUMA nodes: a number of equal ones (`4`), or one at a time (`cpus=[0-7],memory=1G`).
//!
//! Pure. Whether the nodes cover the vCPUs is decided when the whole machine is known.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::text::{key_value, number, set_once, split};
use super::{ByteSize, ValueError};

const KEYS: [&str; 2] = ["cpus", "memory"];

/// One `--numa`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumaEntry {
    /// So many nodes, with vCPUs and memory split evenly among them.
    Split(u32),
    /// One node.
    Node(NodeConfig),
}

/// One node as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its vCPUs; may be empty, for a node that is only memory.
    #[serde(default)]
    pub cpus: CpuList,
    /// Its memory. Given for every node, or for none: then the machine's memory is split evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
}

impl FromStr for NumaEntry {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if !text.contains('=') {
            return number(text, 0, u32::MAX).map(Self::Split);
        }
        let (mut cpus, mut memory) = (None, None);
        for word in split(text)? {
            match key_value(word, &KEYS)? {
                (0, value) => set_once(&mut cpus, KEYS[0], value.parse()?)?,
                (_, value) => set_once(&mut memory, KEYS[1], value.parse()?)?,
            }
        }
        Ok(Self::Node(NodeConfig { cpus: cpus.unwrap_or_default(), memory }))
    }
}

impl fmt::Display for NumaEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split(nodes) => write!(f, "{nodes}"),
            Self::Node(NodeConfig { cpus, memory: None }) => write!(f, "cpus=[{cpus}]"),
            Self::Node(NodeConfig { cpus, memory: Some(memory) }) => write!(f, "cpus=[{cpus}],memory={memory}"),
        }
    }
}

/// As a value of a file: a number for equal nodes, else a list of tables.
pub(crate) fn serialize<S: Serializer>(entries: &[NumaEntry], serializer: S) -> Result<S::Ok, S::Error> {
    match entries {
        [NumaEntry::Split(nodes)] => serializer.serialize_u32(*nodes),
        _ => serializer.collect_seq(entries.iter().filter_map(|entry| match entry {
            NumaEntry::Node(node) => Some(node),
            NumaEntry::Split(_) => None,
        })),
    }
}

/// From a value of a file: a number, or a list of tables.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NumaEntry>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<NumaEntry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of nodes, or a list of nodes")
        }

        fn visit_u64<E: de::Error>(self, nodes: u64) -> Result<Self::Value, E> {
            let nodes = u32::try_from(nodes).map_err(|_| E::custom("more nodes than 32 bits can count"))?;
            Ok(vec![NumaEntry::Split(nodes)])
        }

        fn visit_i64<E: de::Error>(self, nodes: i64) -> Result<Self::Value, E> {
            match u64::try_from(nodes) {
                Ok(nodes) => self.visit_u64(nodes),
                Err(_) => Err(E::invalid_value(de::Unexpected::Signed(nodes), &self)),
            }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(node) = seq.next_element()? {
                entries.push(NumaEntry::Node(node));
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_any(Entries)
}

/// A set of vCPU numbers as ranges: sorted, not touching, so that a hostile `0-4294967295` costs eight bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// The ranges, first and last number each, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    /// How many numbers are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether no number is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers, ascending. Look at [`CpuList::len`] before collecting them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Result<Self, ValueError> {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end => return Err(ValueError::RepeatedCpu { cpu: first }),
                Some((_, end)) if first - 1 == *end => *end = last,
                _ => merged.push((first, last)),
            }
        }
        Ok(Self(merged))
    }
}

fn range(item: &str) -> Result<(u32, u32), ValueError> {
    let wrong = |_| ValueError::CpuRange { item: item.to_owned() };
    let (first, last) = item.split_once('-').unwrap_or((item, item));
    let first = number(first, 0, u32::MAX).map_err(wrong)?;
    let last = number(last, 0, u32::MAX).map_err(wrong)?;
    if first <= last { Ok((first, last)) } else { Err(ValueError::CpuRange { item: item.to_owned() }) }
}

impl FromStr for CpuList {
    type Err = ValueError;

    /// Reads `[0-3,8]`; the brackets may be left out, as in a file or where there is but one range.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let inside = match (text.strip_prefix('['), text.strip_suffix(']')) {
            (Some(_), Some(_)) => &text[1..text.len() - 1],
            (None, None) => text,
            _ => return Err(ValueError::Brackets { value: text.to_owned() }),
        };
        if inside.is_empty() {
            return Ok(Self::default());
        }
        Self::from_ranges(inside.split(',').map(range).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for CpuList {
    /// Prints `0-3,8`, without brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = CpuList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of CPUs such as \"0-3,8\" or [0, 1, 2, 3, 8]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<CpuList, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<CpuList, A::Error> {
                let mut ranges = Vec::new();
                while let Some(cpu) = seq.next_element()? {
                    ranges.push((cpu, cpu));
                }
                CpuList::from_ranges(ranges).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(List)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().expect("well-formed")
    }

    #[test]
    fn a_node_is_read() {
        let node = NodeConfig { cpus: list("0-7"), memory: Some(ByteSize(1 << 30)) };
        assert_eq!("cpus=[0-7],memory=1G".parse(), Ok(NumaEntry::Node(node)));
        let memory_only = NodeConfig { cpus: CpuList::default(), memory: Some(ByteSize(1 << 30)) };
        assert_eq!("memory=1G".parse(), Ok(NumaEntry::Node(memory_only.clone())));
        assert_eq!("cpus=[],memory=1G".parse(), Ok(NumaEntry::Node(memory_only)));
        assert_eq!("4".parse(), Ok(NumaEntry::Split(4)));
    }

    #[test]
    fn lists_are_sorted_and_joined() {
        assert_eq!(list("[8,0-3,4]").to_string(), "0-4,8");
        assert_eq!(list("0-4294967295").len(), 1 << 32);
        assert_eq!(list("[3,1]").iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("cpus=[0-3,2]", "CPU 2 is in the list twice; name it once"),
            ("cpus=[3-0]", "`3-0` is not a CPU or a range of CPUs; a list is written [0-3,8], and [] is the empty one"),
            ("cpus=[0-3", "brackets in `cpus=[0-3` do not match; a list is written [0-3,8]"),
            ("cpu=[0-3]", "unknown key `cpu`, did you mean `cpus`?; known keys are cpus, memory"),
            ("four", "`four` is not a whole number from 0 to 4294967295"),
            ("cpus=0-3,5", "`5` is not of the form key=value; known keys are cpus, memory"),
        ] {
            assert_eq!(text.parse::<NumaEntry>().expect_err(text).to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(cpus in proptest::collection::btree_set(0u32..200, 0..40)) {
            let ranges = cpus.iter().map(|cpu| (*cpu, *cpu)).collect();
            let made = CpuList::from_ranges(ranges).expect("no number twice");
            prop_assert_eq!(&list(&made.to_string()), &made);
            prop_assert!(made.iter().eq(cpus));
        }

        #[test]
        fn any_text_is_borne(text in "[0-9a-z=,\\-\\[\\]é]*") {
            let _ = text.parse::<NumaEntry>();
            let _ = text.parse::<CpuList>();
        }
    }
}
