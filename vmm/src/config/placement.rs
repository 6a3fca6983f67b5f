// SPDX-License-Identifier: Apache-2.0
//! Where vCPU threads may run: `pin=0` or `pin=[0,1]`. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::ValueError;
use super::text::key_value;

/// Where vCPU threads may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PlacementConfig {
    /// Every vCPU thread on any of these host CPUs; never empty.
    Pin(CpuSet<HostCpu>),
}

impl FromStr for PlacementConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (_, value) = key_value(text, &["pin"])?;
        let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(value);
        let cpus: CpuSet<HostCpu> = inner.parse()?;
        if cpus.is_empty() { Err(ValueError::NoCpus { value: text.to_owned() }) } else { Ok(Self::Pin(cpus)) }
    }
}

impl fmt::Display for PlacementConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Pin(cpus) = self;
        write!(f, "pin=[{cpus}]")
    }
}

impl TryFrom<String> for PlacementConfig {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<PlacementConfig> for String {
    fn from(placement: PlacementConfig) -> Self {
        placement.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_or_a_list() {
        let one: PlacementConfig = "pin=0".parse().unwrap();
        assert_eq!(one.to_string(), "pin=[0]");
        let many: PlacementConfig = "pin=[0,2-3]".parse().unwrap();
        assert_eq!(many.to_string().parse(), Ok(many));
        for text in ["", "pin", "pin=", "pin=[]", "pin=x", "pn=0"] {
            assert!(text.parse::<PlacementConfig>().is_err(), "{text}");
        }
    }
}
