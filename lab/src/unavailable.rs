// SPDX-License-Identifier: Apache-2.0
//! The one answer of a machine that cannot have a lab: what is missing, why, and what helps.
//!
//! Place in the flow: finding and fetching packages ends here; a test that gets this value reports itself as ignored with
//! its text. Invariant: it is never used for a lab that started and failed.

use thiserror::Error;

/// The lab cannot be had on this machine, now.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the lab is not available: {what}: {why}; {remedy}")]
pub struct LabUnavailable {
    /// The thing that is missing.
    pub what: String,
    /// Why it could not be had.
    pub why: String,
    /// What would help.
    pub remedy: String,
}

impl LabUnavailable {
    /// Puts the three parts together.
    pub(crate) fn new(what: impl Into<String>, why: impl ToString, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.to_string(), remedy: remedy.into() }
    }
}
