// SPDX-License-Identifier: Apache-2.0
//! Rules of placement that are switched off: `--placement-off numa,pair`. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use policy::placement::Rules;
use serde::{Deserialize, Serialize};

use super::ValueError;
use super::nearest::nearest;

/// The word for no rule.
const NONE: &str = "none";

/// Rules that are switched off, by the names of [`Rules::NAMES`]. By default `pair`: what it brings was measured, and it is a loss
/// (docs/placement.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RulesOff(BTreeSet<&'static str>);

impl Default for RulesOff {
    fn default() -> Self {
        Self(BTreeSet::from(["pair"]))
    }
}

impl RulesOff {
    /// All rules but these.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        for switch in Rules::NAMES.iter().filter(|name| self.0.contains(*name)) {
            rules.switch(switch, false);
        }
        rules
    }
}

impl FromStr for RulesOff {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let known = |word: &str| {
            Rules::NAMES.into_iter().find(|name| *name == word).ok_or_else(|| ValueError::UnknownWord {
                kind: "rule of placement",
                word: word.to_owned(),
                nearest: nearest(word, Rules::NAMES).map(str::to_owned),
                known: Rules::NAMES.join(", "),
            })
        };
        if text == NONE {
            return Ok(Self(BTreeSet::new()));
        }
        text.split(',').map(str::trim).map(known).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for RulesOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().copied().collect();
        if names.is_empty() { f.write_str(NONE) } else { f.write_str(&names.join(",")) }
    }
}

impl TryFrom<String> for RulesOff {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<RulesOff> for String {
    fn from(rules: RulesOff) -> Self {
        rules.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_switched_off_alone() {
        for name in Rules::NAMES {
            let off: RulesOff = name.parse().unwrap();
            assert_eq!(off.to_string(), name);
            let mut rules = off.rules();
            assert_ne!(rules, Rules::default(), "{name}");
            assert!(rules.switch(name, true));
            assert_eq!(rules, Rules::default(), "{name} and nothing else");
        }
        let none: RulesOff = "none".parse().unwrap();
        assert_eq!((none.rules(), none.to_string().as_str()), (Rules::default(), "none"));
        assert_eq!(RulesOff::default(), "pair".parse().unwrap());
        let two: RulesOff = "pair,numa".parse().unwrap();
        assert_eq!((two.rules().pair, two.rules().numa, two.rules().asym), (false, false, true));
    }

    #[test]
    fn a_rule_that_does_not_exist_is_named_with_its_neighbour() {
        let text = "numa,claim".parse::<RulesOff>().unwrap_err().to_string();
        assert!(text.contains("`claim`") && text.contains("did you mean `claims`?"), "{text}");
        assert!("".parse::<RulesOff>().is_err());
    }
}
