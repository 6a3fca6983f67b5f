// SPDX-License-Identifier: Apache-2.0
//! `/thresholds`: from which numbers on `/events` tells of pressure and of stolen time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Generation, Parameter};

/// The thresholds that hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Thresholds {
    /// Changes of the machine so far.
    pub generation: Generation,
    /// Pause events a second, over all vCPUs, from which on `pause_pressure` is told; the all-clear comes at half of it.
    pub pause_events_per_s: Parameter,
    /// Part of the vCPUs' time spent runnable without a CPU, in thousandths, from which on `steal` is told; likewise.
    pub steal_permille: Parameter,
}

/// Body of `PATCH /thresholds`: what is left out stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdsChange {
    /// Pause events a second, over all vCPUs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false, minimum = 1, maximum = 1_000_000_000)]
    pub pause_events_per_s: Option<u64>,
    /// Part of the vCPUs' time, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    pub steal_permille: Option<u64>,
}

/// What a threshold may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdRange {
    /// Its key.
    pub name: &'static str,
    /// Least value.
    pub least: u64,
    /// Greatest value.
    pub most: u64,
    /// What holds if nobody says anything.
    pub default: u64,
}

impl ThresholdsChange {
    /// What each threshold may be, in the order of [`ThresholdsChange::values`].
    pub const RANGES: [ThresholdRange; 2] = [
        ThresholdRange { name: "pause_events_per_s", least: 1, most: 1_000_000_000, default: 10_000 },
        ThresholdRange { name: "steal_permille", least: 1, most: 1000, default: 100 },
    ];

    /// What is asked for, in the order of [`ThresholdsChange::RANGES`].
    #[must_use]
    pub const fn values(&self) -> [Option<u64>; 2] {
        [self.pause_events_per_s, self.steal_permille]
    }

    /// This, and what it leaves out from `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            pause_events_per_s: self.pause_events_per_s.or(below.pause_events_per_s),
            steal_permille: self.steal_permille.or(below.steal_permille),
        }
    }

    /// The first value that is out of its range.
    #[must_use]
    pub fn out_of_range(&self) -> Option<(ThresholdRange, u64)> {
        let asked = Self::RANGES.into_iter().zip(self.values());
        let wrong = |(range, value): (ThresholdRange, Option<u64>)| {
            value.filter(|value| *value < range.least || *value > range.most).map(|value| (range, value))
        };
        asked.filter_map(wrong).next()
    }
}

impl Thresholds {
    /// Of what flags and clients asked for; a client's word counts.
    #[must_use]
    pub fn of(flags: &ThresholdsChange, clients: &ThresholdsChange, generation: Generation) -> Self {
        let told = |at: usize| {
            let ThresholdRange { least, most, default, .. } = ThresholdsChange::RANGES[at];
            let (asked, why) = match (clients.values()[at], flags.values()[at]) {
                (Some(value), _) => (Some(value), "api"),
                (None, Some(value)) => (Some(value), "flag"),
                (None, None) => (None, "default"),
            };
            Parameter { asked, granted: asked.unwrap_or(default), least, most, why: why.to_owned(), at_run_time: true }
        };
        Self { generation, pause_events_per_s: told(0), steal_permille: told(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_word_counts_and_who_decided_is_told() {
        let flags = ThresholdsChange { pause_events_per_s: Some(5), steal_permille: Some(7) };
        let clients = ThresholdsChange { steal_permille: Some(9), ..ThresholdsChange::default() };
        let told = Thresholds::of(&flags, &clients, Generation(3));
        assert_eq!((told.pause_events_per_s.granted, told.pause_events_per_s.why.as_str()), (5, "flag"));
        assert_eq!((told.steal_permille.granted, told.steal_permille.why.as_str()), (9, "api"));
        let none = ThresholdsChange::default();
        let told = Thresholds::of(&none, &none, Generation(3));
        assert_eq!((told.steal_permille.granted, told.steal_permille.asked), (100, None));
    }

    #[test]
    fn values_out_of_range_are_found() {
        let change = |steal| ThresholdsChange { steal_permille: Some(steal), ..ThresholdsChange::default() };
        assert_eq!(change(1000).out_of_range(), None);
        for wrong in [0, 1001] {
            let (range, value) = change(wrong).out_of_range().unwrap();
            assert_eq!((range.name, value), ("steal_permille", wrong));
        }
    }
}
