// SPDX-License-Identifier: Apache-2.0
//! `--api-thresholds`: from which numbers on the control API's events tell of pressure and of stolen time.
//!
//! Pure. Invariant: what is held here is in its range.

use std::fmt;
use std::str::FromStr;

use api::wire::ThresholdsChange;
use serde::{Deserialize, Serialize};

use super::ValueError;
use super::text::{key_value, set_once, split};

/// `pause-events-per-s=10000,steal-permille=100`, either of them alone too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventThresholds(ThresholdsChange);

const KEYS: [&str; 2] = ["pause-events-per-s", "steal-permille"];

impl EventThresholds {
    /// As the control API takes them.
    #[must_use]
    pub const fn change(&self) -> ThresholdsChange {
        self.0
    }
}

impl FromStr for EventThresholds {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut values = [None; KEYS.len()];
        for word in split(text)? {
            let (key, value) = key_value(word, &KEYS)?;
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let refused = || ValueError::Parameter { name: KEYS[key], value: value.to_owned() };
            let value = digits.then(|| value.parse().ok()).flatten().ok_or_else(refused)?;
            set_once(&mut values[key], KEYS[key], value)?;
        }
        let change = ThresholdsChange { pause_events_per_s: values[0], steal_permille: values[1] };
        match change.out_of_range() {
            Some((range, value)) => {
                Err(ValueError::OutOfRange { name: range.name, value, min: range.least, max: range.most })
            }
            None => Ok(Self(change)),
        }
    }
}

impl fmt::Display for EventThresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = KEYS.iter().zip(self.0.values()).filter_map(|(key, value)| value.map(|value| (key, value)));
        let words: Vec<String> = given.map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&words.join(","))
    }
}

impl TryFrom<String> for EventThresholds {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<EventThresholds> for String {
    fn from(thresholds: EventThresholds) -> Self {
        thresholds.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_threshold_may_be_given_and_reads_back() {
        for text in ["pause-events-per-s=1,steal-permille=1000", "steal-permille=20"] {
            assert_eq!(text.parse::<EventThresholds>().unwrap().to_string(), text);
        }
        let only: EventThresholds = "pause-events-per-s=7".parse().unwrap();
        assert_eq!(only.change().values(), [Some(7), None]);
    }

    #[test]
    fn what_cannot_be_a_threshold_is_refused() {
        for wrong in ["", "steal=1", "steal-permille", "steal-permille=1001", "steal-permille=0", "steal-permille=-1"] {
            assert!(wrong.parse::<EventThresholds>().is_err(), "{wrong}");
        }
        let twice = "steal-permille=1,steal-permille=2".parse::<EventThresholds>();
        assert!(matches!(twice, Err(ValueError::RepeatedKey { .. })));
    }
}
