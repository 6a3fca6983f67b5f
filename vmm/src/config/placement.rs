// SPDX-License-Identifier: Apache-2.0
//! Where vCPU threads run: `auto`, `spread`, `pack`, `none`, `pin=0` or `pin=[0,1]`, each with `,exclusive`. Pure.

use std::fmt;
use std::str::FromStr;

use policy::placement::Mode;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::ValueError;
use super::text::{key_value, split};

const MODES: [(&str, Mode); 4] =
    [("auto", Mode::Auto), ("spread", Mode::Spread), ("pack", Mode::Pack), ("none", Mode::None)];
const EXCLUSIVE: &str = "exclusive";

/// Where vCPU threads run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlacementConfig {
    /// How CPUs are chosen; the list of `pin` is never empty.
    pub mode: Mode,
    /// Whether other VMs must keep off these CPUs, and this one off theirs.
    pub exclusive: bool,
}

impl FromStr for PlacementConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let unknown = || ValueError::Placement { value: text.to_owned() };
        let words = split(text)?;
        let (first, exclusive) = match words[..] {
            [first] => (first, false),
            [first, EXCLUSIVE] => (first, true),
            _ => return Err(unknown()),
        };
        let mode = match MODES.iter().find(|(name, _)| *name == first) {
            Some((_, Mode::None)) if exclusive => return Err(unknown()),
            Some((_, mode)) => mode.clone(),
            None if first.contains('=') => Mode::Pin(pinned(first)?),
            None => return Err(unknown()),
        };
        Ok(Self { mode, exclusive })
    }
}

fn pinned(word: &str) -> Result<CpuSet<HostCpu>, ValueError> {
    let (_, value) = key_value(word, &["pin"])?;
    let inner = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(value);
    let cpus: CpuSet<HostCpu> = inner.parse()?;
    if cpus.is_empty() { Err(ValueError::NoCpus { value: word.to_owned() }) } else { Ok(cpus) }
}

impl fmt::Display for PlacementConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mode {
            Mode::Pin(cpus) => write!(f, "pin=[{cpus}]")?,
            mode => f.write_str(MODES.iter().find(|(_, known)| known == mode).map_or("auto", |(name, _)| name))?,
        }
        if self.exclusive { write!(f, ",{EXCLUSIVE}") } else { Ok(()) }
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
        for text in ["pin=[0,2-3]", "auto", "spread", "pack", "none", "auto,exclusive", "pin=[0,2-3],exclusive"] {
            assert_eq!(text.parse::<PlacementConfig>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for text in
            ["", "pin", "pin=", "pin=[]", "pin=x", "pn=0", "Auto", "none,exclusive", "auto,shared", "auto,", "[", "a=b"]
        {
            assert!(text.parse::<PlacementConfig>().is_err(), "{text}");
        }
    }
}
