// SPDX-License-Identifier: Apache-2.0
//! `/pause`: what is done about pause loops: asked for, granted, and why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Generation;

/// How much is done about pause loops (docs/pause-loops.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// Nothing; PAUSE exits are switched off where the kernel allows it.
    Off,
    /// The kernel alone; pause loops are counted.
    Kernel,
    /// Decide and count, and do nothing.
    Observe,
    /// Decide and do it.
    Act,
}

/// Something that was asked for, and whether it was had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// One parameter of the policy or of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parameter {
    /// What was asked for; absent if nothing was, and then the default is used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asked: Option<u64>,
    /// What is used.
    pub granted: u64,
    /// Least value.
    pub least: u64,
    /// Greatest value.
    pub most: u64,
    /// Who decided: `default`, `flag`, `api`, or a sentence why it is not what was asked for.
    pub why: String,
    /// Whether it can be changed while the guest runs.
    pub at_run_time: bool,
}

/// The pause handling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// Changes of the machine so far.
    pub generation: Generation,
    /// How much is done.
    pub mode: PauseMode,
    /// The mechanism that was asked for: `auto`, `none`, `yield` or `park`.
    pub mechanism: String,
    /// Where events come from.
    pub sources: Vec<Grant>,
    /// How a CPU can be given away.
    pub mechanisms: Vec<Grant>,
    /// How runqueues are seen.
    pub views: Vec<Grant>,
    /// The first vCPU whose PAUSE exits could not be seen though the tracepoint was granted, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unseen: Option<String>,
    /// The parameters, by the names that `--pause-set` takes.
    pub parameters: BTreeMap<String, Parameter>,
}

/// Body of `PATCH /pause`: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseChange {
    /// How much is done from now on. A guest that was started with `off` has no pause port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false)]
    pub mode: Option<PauseMode>,
    /// The mechanism from now on: `auto`, `none`, `yield` or `park`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false)]
    pub mechanism: Option<String>,
    /// Parameters to set, by name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false)]
    pub parameters: Option<BTreeMap<String, u64>>,
}
