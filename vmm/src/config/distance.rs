// SPDX-License-Identifier: Apache-2.0
//! One direction of one pair of nodes: `0:1=21`.
//!
//! Pure. The other direction is another entry; nothing is made symmetric here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use topology::id::NodeId;

use super::ValueError;
use super::text::number;

/// How far node `to` is from node `from`, in the unit of ACPI's SLIT: 10 is local.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DistanceConfig {
    /// The node whose CPUs look.
    pub from: NodeId,
    /// The node whose memory is looked at.
    pub to: NodeId,
    /// The distance as written; whether it is one that SLIT allows is decided by [`topology`].
    pub distance: u8,
}

impl FromStr for DistanceConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let shape = || ValueError::Distance { value: text.to_owned() };
        let (pair, distance) = text.split_once('=').ok_or_else(shape)?;
        let (from, to) = pair.split_once(':').ok_or_else(shape)?;
        let node = |text| number(text, 0, u32::MAX).map(NodeId).map_err(|_| shape());
        let distance = number(distance, 0, u8::MAX.into())?;
        let distance = u8::try_from(distance).map_err(|_| shape())?;
        Ok(Self { from: node(from)?, to: node(to)?, distance })
    }
}

impl fmt::Display for DistanceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}={}", self.from, self.to, self.distance)
    }
}

impl TryFrom<String> for DistanceConfig {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<DistanceConfig> for String {
    fn from(distance: DistanceConfig) -> Self {
        distance.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_is_read() {
        let distance = DistanceConfig { from: NodeId(0), to: NodeId(1), distance: 21 };
        assert_eq!("0:1=21".parse(), Ok(distance));
    }

    #[test]
    fn other_shapes_are_refused() {
        for text in ["", "0", "0:1", "0=21", "0:1:2=21", ":1=21", "0:1=", "0:1=256", "a:b=c", "0:1=21=22"] {
            assert!(text.parse::<DistanceConfig>().is_err(), "{text}");
        }
    }
}
