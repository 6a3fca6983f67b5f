// SPDX-License-Identifier: Apache-2.0
//! Values of scenario files: durations with their unit, durations that vary, lists of CPUs.
//!
//! Invariant: a number without a unit is refused, and whatever is refused is named with what would be right.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use crate::guest::{Span, Spread};

/// Longest duration a scenario may name: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A duration such as `"20us"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Duration(pub(super) u64);

fn parse_duration(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("`{text}` is no duration: write a whole number and ns, us, ms or s, as in \"20us\"")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no duration: begin with a whole number"))?;
    number
        .checked_mul(scale)
        .filter(|&ns| ns <= LONGEST_NS)
        .ok_or_else(|| format!("`{text}` is longer than an hour, the longest duration a scenario may name"))
}

struct Text<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Text("a duration with its unit, as in \"20us\"", parse_duration)).map(Self)
    }
}

/// A duration that may vary: `"20us"` from half to one and a half times that, `"=20us"` exactly, `"~20us"` exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varying(pub(super) Span);

fn parse_span(text: &str) -> Result<Span, String> {
    let (spread, rest) = match text.as_bytes().first() {
        Some(b'=') => (Spread::Fixed, &text[1..]),
        Some(b'~') => (Spread::Exponential, &text[1..]),
        _ => (Spread::Around, text),
    };
    Ok(Span { mean_ns: parse_duration(rest)?, spread })
}

impl<'de> Deserialize<'de> for Varying {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Text("a duration: \"20us\", \"=20us\" (exactly) or \"~20us\" (exponential)", parse_span))
            .map(Self)
    }
}

/// A list of CPUs, as in `"0-3,8"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuList(pub(super) CpuSet<HostCpu>);

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text.parse().map_err(|error| format!("`{text}` is no list of CPUs: {error}"));
        from.deserialize_str(Text("a list of CPUs, as in \"0-3,8\"", parse)).map(Self)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranged<const MIN: u64, const MAX: u64>(pub(super) u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Ranged<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = i128::from(i64::deserialize(from)?);
        let whole = u64::try_from(value).ok().filter(|value| (MIN..=MAX).contains(value));
        whole.map(Self).ok_or_else(|| D::Error::custom(format!("{value} is outside {MIN} to {MAX}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bounds() {
        assert_eq!(parse_duration("20us"), Ok(20_000));
        assert_eq!(parse_duration("3600s"), Ok(LONGEST_NS));
        for bad in ["20", "us", "", "1.5us", "20 us", "-1us", "3601s", "99999999999999999999s", "1m"] {
            assert!(parse_duration(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn a_duration_says_how_it_varies() {
        assert_eq!(parse_span("5ms"), Ok(Span { mean_ns: 5_000_000, spread: Spread::Around }));
        assert_eq!(parse_span("=5ns"), Ok(Span::fixed(5)));
        assert_eq!(parse_span("~5s"), Ok(Span { mean_ns: 5_000_000_000, spread: Spread::Exponential }));
    }
}
