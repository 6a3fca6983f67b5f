// SPDX-License-Identifier: Apache-2.0
//! A plan as it is written: TOML, every value with its place in the text.
//!
//! Invariant: a key that there is not is an error. Nothing is checked against anything else here.

use serde::Deserialize;
use toml::Spanned;

use super::arm::ArmSettings;
use super::check::unknown;
use super::error::{PlanFault, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) repetitions: Spanned<u32>,
    pub(super) warm_up: Option<Spanned<u32>>,
    pub(super) window_ms: Spanned<u32>,
    pub(super) time_limit_s: Option<Spanned<u32>>,
    pub(super) overcommit: Spanned<Vec<Spanned<f64>>>,
    pub(super) workloads: Spanned<Vec<Spanned<String>>>,
    pub(super) arms: Spanned<Vec<Spanned<String>>>,
    pub(super) baseline: Option<Spanned<String>>,
    pub(super) guests: Spanned<GuestsFile>,
    pub(super) on: Option<Spanned<String>>,
    pub(super) lab: Option<Spanned<LabFile>>,
    #[serde(default)]
    pub(super) workload: Vec<WorkloadFile>,
    #[serde(default)]
    pub(super) arm: Vec<ArmFile>,
    pub(super) look: Option<LookFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookFile {
    pub(super) workload: Spanned<String>,
    pub(super) overcommit: Spanned<f64>,
    pub(super) arm: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabFile {
    pub(super) counted_time: Option<Spanned<bool>>,
    pub(super) cpus: Option<Spanned<u32>>,
    pub(super) memory_mib: Option<Spanned<u32>>,
}

/// A number, or a word that stands for one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give a whole number, or \"host\"")]
pub(super) enum NumberOrWord {
    Number(u32),
    Word(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuestsFile {
    pub(super) system: Option<Spanned<String>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) vcpus: Option<Spanned<NumberOrWord>>,
    pub(super) nodes: Option<Spanned<u32>>,
    pub(super) memory_mib: Option<Spanned<u32>>,
    pub(super) cpus: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadFile {
    pub(super) name: Spanned<String>,
    pub(super) probe: Option<Spanned<String>>,
    pub(super) linux: Option<Spanned<String>>,
}

/// The keys of [`ArmSettings`] are repeated, for a flattened struct cannot tell unknown keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmFile {
    pub(super) name: Spanned<String>,
    pause: Option<String>,
    pause_source: Option<String>,
    pause_mechanism: Option<String>,
    #[serde(default)]
    pause_set: Vec<String>,
    placement: Option<String>,
    pv: Option<String>,
    disable_exits: Option<String>,
    halt_poll: Option<u32>,
}

impl ArmFile {
    pub(super) fn settings(&self) -> ArmSettings {
        ArmSettings {
            pause: self.pause.clone(),
            pause_source: self.pause_source.clone(),
            pause_mechanism: self.pause_mechanism.clone(),
            pause_set: self.pause_set.clone(),
            placement: self.placement.clone(),
            pv: self.pv.clone(),
            disable_exits: self.disable_exits.clone(),
            halt_poll: self.halt_poll,
        }
    }
}

fn one() -> u64 {
    1
}

pub(super) fn parse(text: &str) -> Result<PlanFile, PlanFault> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        PlanFault { line: line_of(text, start), key: key_at(text, start), problem: problem(error.message()) }
    })
}

/// An unknown key with the nearest known one; anything else in the words of the parser.
fn problem(message: &str) -> Problem {
    // serde: "unknown field `a`, expected one of `b`, `c`".
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field `"), quoted.next()) {
        (true, Some(name)) => unknown("key", name, &quoted.collect::<Vec<_>>()),
        _ => Problem::Text(message.trim().replace('\n', "; ")),
    }
}

/// The line, from 1, of a place in a text.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

/// The key of the value at a place: what stands before the last `=` at the beginning of a line up to there.
fn key_at(text: &str, at: usize) -> String {
    let lines = text.lines().take(line_of(text, at)).collect::<Vec<_>>();
    let keyed = lines.iter().rev().find_map(|line| line.split_once('=').map(|(key, _)| key.trim()));
    keyed.filter(|key| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).unwrap_or("").to_owned()
}
