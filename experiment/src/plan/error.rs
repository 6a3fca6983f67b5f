// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a plan, with the line and the key it stands at.

use std::io;
use std::path::PathBuf;

/// Greatest size of a plan in bytes.
pub(super) const MOST_BYTES: u64 = 1 << 20;

/// A plan that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}; name a plan, as those in resources/plans", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is too long to be a plan.
    #[error("{}: longer than {MOST_BYTES} bytes; is it the right file?", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It says something that cannot be.
    #[error("{}: {fault}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What.
        fault: Box<PlanFault>,
    },
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}{problem}", key_prefix(.key))]
pub struct PlanFault {
    /// Line, from 1.
    pub line: usize,
    /// Key; empty where the text is no TOML.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

/// What is wrong with a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No TOML, a key that there is not, or a value of the wrong kind.
    #[error("{0}")]
    Text(String),
    /// A number outside its range.
    #[error("{value} is outside {least} to {most}: choose a number within")]
    OutOfRange {
        /// The number as it was written.
        value: String,
        /// The least that is allowed.
        least: String,
        /// The most.
        most: String,
    },
    /// A list with nothing in it.
    #[error("is empty: name at least one")]
    Empty,
    /// Something named twice.
    #[error("`{name}` is named twice: remove one")]
    Twice {
        /// The name.
        name: String,
    },
    /// A name that is not known.
    #[error("there is no {what} `{name}`{}; known are {known}", hint(.nearest))]
    Unknown {
        /// What was named.
        what: &'static str,
        /// The name.
        name: String,
        /// A name that is nearly the same.
        nearest: Option<String>,
        /// All names.
        known: String,
    },
    /// A name that cannot stand in a table or a file name.
    #[error("`{name}` is no name: use letters, digits, `-`, `_` and `.`, at most 40")]
    BadName {
        /// The name.
        name: String,
    },
    /// Neither or both of the two keys that size guests.
    #[error("give either count (their vCPUs follow from the ratio) or vcpus (their number follows), not {0}")]
    Size(&'static str),
    /// A ratio that cannot be had here.
    #[error("{why}: choose another ratio, or another number in [guests]")]
    Ratio {
        /// Why.
        why: String,
    },
    /// Host CPUs that this process may not use.
    #[error("{asked} is not within {allowed}, the host CPUs that this process may use")]
    Cpus {
        /// What the plan asks for.
        asked: String,
        /// What there is.
        allowed: String,
    },
    /// An arm whose decisions are to be looked at, and that decides nothing.
    #[error("arm `{arm}` does not ask the policy, so there are no decisions to look at: name one that does, as `act`")]
    NoDecisions {
        /// The arm.
        arm: String,
    },
    /// A window that the tools of the Linux guest cannot have.
    #[error("{window_ms} ms is not whole seconds, which the tools of a Linux guest count: choose a multiple of 1000")]
    WholeSeconds {
        /// The window.
        window_ms: u32,
    },
    /// A workload's table without words for the system of the plan's guests.
    #[error("the guests of this plan (system in [guests]) want the workload's words under `{key}`, and no others")]
    OtherSystem {
        /// The key that is wanted.
        key: &'static str,
    },
    /// Time by instructions on several CPUs.
    #[error("time is counted in instructions on one CPU only: write `cpus = 1`, or leave it out")]
    CountedTime,
    /// A host that is described and not used.
    #[error("describes an emulated host, and the plan runs on this one: write `on = \"lab\"`, or leave [lab] out")]
    LabUnused,
    /// The machine of an arm is refused.
    #[error("{0}")]
    Machine(String),
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}
