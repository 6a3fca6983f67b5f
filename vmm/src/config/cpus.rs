// SPDX-License-Identifier: Apache-2.0
//! How many vCPUs, and in what shape: `32` or `32,sockets=2,dies=1,clusters=2,cores=4,threads=2`.
//!
//! Pure. A level that is not given is left open here and chosen by [`topology`], so that printing does not freeze it.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use super::ValueError;
use super::text::{key_value, number, set_once, split};

/// Levels of the shape, from the outside in; each counts units inside one of the level before.
const LEVELS: [&str; 5] = ["sockets", "dies", "clusters", "cores", "threads"];

/// vCPUs and their shape, as asked for. Whether the levels multiply up to the count is decided by [`topology`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpusConfig {
    /// Number of vCPUs.
    pub count: u32,
    /// Packages in the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Dies in a package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies: Option<u32>,
    /// Clusters (shared L2; the module level of CPUID leaf 0x1F) in a die.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
    /// Cores in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Hardware threads in a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

impl CpusConfig {
    /// `count` vCPUs in a shape that is left open.
    #[must_use]
    pub const fn flat(count: u32) -> Self {
        Self { count, sockets: None, dies: None, clusters: None, cores: None, threads: None }
    }

    const fn levels(&self) -> [Option<u32>; 5] {
        [self.sockets, self.dies, self.clusters, self.cores, self.threads]
    }

    /// As a value of a file: a number, or a table if levels are given.
    pub(crate) fn serialize_shortest<S: Serializer>(cpus: &Option<Self>, serializer: S) -> Result<S::Ok, S::Error> {
        match cpus {
            Some(cpus) if *cpus == Self::flat(cpus.count) => serializer.serialize_u32(cpus.count),
            Some(cpus) => cpus.serialize(serializer),
            None => serializer.serialize_none(),
        }
    }

    /// From a value of a file: a number, or a table with `count` and levels.
    pub(crate) fn deserialize_any_form<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        struct AnyForm;
        impl<'de> Visitor<'de> for AnyForm {
            type Value = CpusConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of vCPUs, or a table with count and the levels of the shape")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<CpusConfig, E> {
                let count = u32::try_from(count);
                count.map(CpusConfig::flat).map_err(|_| E::custom("more vCPUs than 32 bits can count"))
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<CpusConfig, E> {
                match u64::try_from(count) {
                    Ok(count) => self.visit_u64(count),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(count), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CpusConfig, A::Error> {
                CpusConfig::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(AnyForm).map(Some)
    }
}

impl FromStr for CpusConfig {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let words = split(text)?;
        let (count, rest) = words.split_first().map_or(("", &[][..]), |(count, rest)| (*count, rest));
        let count = number(count, 0, u32::MAX)?;
        let mut levels = [None; LEVELS.len()];
        for word in rest {
            let (level, value) = key_value(word, &LEVELS)?;
            set_once(&mut levels[level], LEVELS[level], number(value, 0, u32::MAX)?)?;
        }
        let [sockets, dies, clusters, cores, threads] = levels;
        Ok(Self { count, sockets, dies, clusters, cores, threads })
    }
}

impl fmt::Display for CpusConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        let given = LEVELS.iter().zip(self.levels()).filter_map(|(name, units)| Some((name, units?)));
        given.into_iter().try_for_each(|(name, units)| write!(f, ",{name}={units}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_may_come_in_any_order_and_be_left_out() {
        let cpus: CpusConfig = "32,threads=2,sockets=2".parse().expect("well-formed");
        assert_eq!(cpus, CpusConfig { sockets: Some(2), threads: Some(2), ..CpusConfig::flat(32) });
        assert_eq!(cpus.to_string(), "32,sockets=2,threads=2");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("", "`` is not a whole number from 0 to 4294967295"),
            ("many", "`many` is not a whole number from 0 to 4294967295"),
            ("4,", "`` is not of the form key=value; known keys are sockets, dies, clusters, cores, threads"),
            (
                "4,core=2",
                "unknown key `core`, did you mean `cores`?; known keys are sockets, dies, clusters, cores, threads",
            ),
            ("4,cores=2,cores=2", "key `cores` is given twice; give it once"),
            ("4,cores=-2", "`-2` is not a whole number from 0 to 4294967295"),
        ] {
            assert_eq!(text.parse::<CpusConfig>().expect_err(text).to_string(), message);
        }
    }
}
