// SPDX-License-Identifier: Apache-2.0
//! NUMA nodes: a number of equal ones (`4`), or one at a time (`cpus=[0-7],memory=1G`).
//!
//! Pure. Whether the nodes cover the vCPUs is decided when the whole machine is known.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use topology::cpu_set::CpuSet;
use topology::id::{HostNode, VcpuIndex};

use super::text::{key_value, number, set_once, split};
use super::{ByteSize, MemoryPolicy, ValueError};

const KEYS: [&str; 4] = ["cpus", "memory", "host-node", "policy"];

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
    pub cpus: CpuSet<VcpuIndex>,
    /// Its memory. Given for every node, or for none: then the machine's memory is split evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Host nodes that hold its memory; its vCPUs go to the first. The keys `host-node` of the flag and `host_node` of
    /// a file are the same.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub host_node: CpuSet<HostNode>,
    /// How its memory is tied to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<MemoryPolicy>,
}

impl FromStr for NumaEntry {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if !text.contains('=') {
            return number(text, 0, u32::MAX).map(Self::Split);
        }
        let (mut cpus, mut memory, mut host_node, mut policy) = (None, None, None, None);
        for word in split(text)? {
            match key_value(word, &KEYS)? {
                (0, value) => set_once(&mut cpus, KEYS[0], list(value)?)?,
                (1, value) => set_once(&mut memory, KEYS[1], value.parse()?)?,
                (2, value) => set_once(&mut host_node, KEYS[2], some_host_nodes(word, list(value)?)?)?,
                (_, value) => set_once(&mut policy, KEYS[3], value.parse()?)?,
            }
        }
        let (cpus, host_node) = (cpus.unwrap_or_default(), host_node.unwrap_or_default());
        Ok(Self::Node(NodeConfig { cpus, memory, host_node, policy }))
    }
}

/// Reads `[0-3,8]`; the brackets may be left out where there is but one range.
fn list<Id: Copy + From<u32> + Into<u32>>(text: &str) -> Result<CpuSet<Id>, ValueError> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    Ok(inside.parse()?)
}

/// Memory that is tied to no host node is what was said by leaving the key out.
fn some_host_nodes(word: &str, nodes: CpuSet<HostNode>) -> Result<CpuSet<HostNode>, ValueError> {
    if nodes.is_empty() { Err(ValueError::NoHostNodes { value: word.to_owned() }) } else { Ok(nodes) }
}

impl fmt::Display for NumaEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split(nodes) => write!(f, "{nodes}"),
            Self::Node(NodeConfig { cpus, memory, host_node, policy }) => {
                write!(f, "cpus=[{cpus}]")?;
                memory.iter().try_for_each(|memory| write!(f, ",memory={memory}"))?;
                if !host_node.is_empty() {
                    write!(f, ",host-node=[{host_node}]")?;
                }
                policy.iter().try_for_each(|policy| write!(f, ",policy={policy}"))
            }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> CpuSet<VcpuIndex> {
        text.parse().expect("well-formed")
    }

    #[test]
    fn no_host_nodes_are_not_a_tie() {
        let refused = "cpus=[0-1],memory=1G,host-node=[]".parse::<NumaEntry>();
        assert_eq!(refused, Err(ValueError::NoHostNodes { value: "host-node=[]".to_owned() }));
    }

    #[test]
    fn a_node_is_tied_to_host_nodes() {
        let text = "cpus=[0-1],memory=1G,host-node=[0,2],policy=interleave";
        let entry: NumaEntry = text.parse().expect("well-formed");
        assert_eq!(entry.to_string(), text);
        let NumaEntry::Node(node) = entry else { unreachable!("one node") };
        assert_eq!((node.host_node.len(), node.policy), (2, Some(MemoryPolicy::Interleave)));
    }

    #[test]
    fn a_node_is_read() {
        let node = NodeConfig { cpus: list("0-7"), memory: Some(ByteSize(1 << 30)), ..NodeConfig::default() };
        assert_eq!("cpus=[0-7],memory=1G".parse(), Ok(NumaEntry::Node(node)));
        let memory_only = NodeConfig { memory: Some(ByteSize(1 << 30)), ..NodeConfig::default() };
        assert_eq!("memory=1G".parse(), Ok(NumaEntry::Node(memory_only.clone())));
        assert_eq!("cpus=[],memory=1G".parse(), Ok(NumaEntry::Node(memory_only)));
        assert_eq!("4".parse(), Ok(NumaEntry::Split(4)));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("cpus=[3-0]", "range 3-0 in a CPU list runs backwards: write 0-3"),
            ("cpus=[0-65536]", "CPU 65536 in a CPU list is above 65535, the highest that a list may name"),
            ("cpus=[0-3", "brackets in `cpus=[0-3` do not match; a list is written [0-3,8]"),
            ("cpu=[0-3]", "unknown key `cpu`, did you mean `cpus`?; known keys are cpus, memory, host-node, policy"),
            ("four", "`four` is not a whole number from 0 to 4294967295"),
            ("cpus=0-3,5", "`5` is not of the form key=value; known keys are cpus, memory, host-node, policy"),
        ] {
            assert_eq!(text.parse::<NumaEntry>().expect_err(text).to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_borne(text in "[0-9a-z=,\\-\\[\\]é]*") {
            let _ = text.parse::<NumaEntry>();
        }
    }
}
