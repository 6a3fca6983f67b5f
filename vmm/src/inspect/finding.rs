// SPDX-License-Identifier: Apache-2.0
//! One thing the host offers or lacks. Pure.

use serde::Serialize;

/// Whether the host offers something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It does.
    Yes,
    /// It does not, or not to us.
    No,
    /// It could not be found out.
    Unknown,
}

/// One thing the host offers or lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name, such as `kvm.stats_fd`; the part before the dot groups.
    pub key: &'static str,
    /// Whether it is there.
    pub answer: Answer,
    /// The value behind a yes, or the reason behind anything else.
    pub detail: String,
    /// What to do about a no; none if nothing can be done, or nothing needs to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn yes(key: &'static str, detail: impl Into<String>) -> Self {
        Self { key, answer: Answer::Yes, detail: detail.into(), remedy: None }
    }

    pub(crate) fn no(key: &'static str, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { key, answer: Answer::No, detail: reason.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn unknown(key: &'static str, reason: impl Into<String>) -> Self {
        Self { key, answer: Answer::Unknown, detail: reason.into(), remedy: None }
    }
}
