// SPDX-License-Identifier: Apache-2.0
//! What was asked for about pause loops, what the host grants of it, and why not the rest.
//!
//! Invariant: nothing that was asked for is dropped without an entry here that says why and what to do.

use serde::{Deserialize, Serialize};

/// One thing that was asked for: a source, a mechanism, a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its name, as the flags spell it.
    pub name: String,
    /// Whether it was asked for, by name or by `auto`.
    pub asked: bool,
    /// Whether it is used.
    pub granted: bool,
    /// Why, or why not.
    pub why: String,
    /// What to do to have it; absent if it is granted or cannot be had here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<String>,
}

impl Grant {
    /// Something that is used.
    #[must_use]
    pub fn yes(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), asked: true, granted: true, why: why.into(), remedy: None }
    }

    /// Something that was asked for and is not to be had.
    #[must_use]
    pub fn no(name: &str, why: impl Into<String>, remedy: Option<&str>) -> Self {
        let remedy = remedy.map(str::to_owned);
        Self { name: name.to_owned(), asked: true, granted: false, why: why.into(), remedy }
    }

    /// Why, and what to do, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.why),
            None => self.why.clone(),
        }
    }

    /// Something that was not asked for.
    #[must_use]
    pub fn unasked(name: &str, why: impl Into<String>) -> Self {
        Self { asked: false, ..Self::no(name, why, None) }
    }
}

/// The state of the pause handling that a machine really has, or had when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effective {
    /// The mode, as `--pause` spells it.
    pub mode: String,
    /// The source asked for, as `--pause-source` spells it.
    #[serde(default)]
    pub source: String,
    /// The mechanism asked for, as `--pause-mechanism` spells it.
    #[serde(default)]
    pub mechanism: String,
    /// Where events come from.
    pub sources: Vec<Grant>,
    /// The first vCPU whose PAUSE exits could not be seen though the tracepoint was granted, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unseen: Option<String>,
    /// How a CPU can be given away.
    pub mechanisms: Vec<Grant>,
    /// How runqueues are seen.
    pub views: Vec<Grant>,
    /// Parameters of policy and sources, by name.
    pub parameters: std::collections::BTreeMap<String, u64>,
}
