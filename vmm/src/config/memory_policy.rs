// SPDX-License-Identifier: Apache-2.0
//! How a guest node's memory is tied to host nodes: `default`, `preferred`, `bind` or `interleave`. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ValueError;

/// How memory is tied to host nodes (Documentation/admin-guide/mm/numa_memory_policy.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// Each page on the node of the CPU that first touches it.
    Default,
    /// On the node while it has free memory, then on the nearest others.
    Preferred,
    /// On the nodes and nowhere else.
    Bind,
    /// Page by page on the nodes in turn.
    Interleave,
}

impl MemoryPolicy {
    const NAMES: [(&str, Self); 4] = [
        ("default", Self::Default),
        ("preferred", Self::Preferred),
        ("bind", Self::Bind),
        ("interleave", Self::Interleave),
    ];
}

impl FromStr for MemoryPolicy {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, policy)| *policy).ok_or_else(|| ValueError::MemoryPolicy { value: text.to_owned() })
    }
}

impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, policy)| policy == self).map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (name, policy) in MemoryPolicy::NAMES {
            assert_eq!((name.parse(), policy.to_string()), (Ok(policy), name.to_owned()));
        }
        assert!("local".parse::<MemoryPolicy>().is_err());
    }
}
