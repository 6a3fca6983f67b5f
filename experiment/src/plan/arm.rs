// SPDX-License-Identifier: Apache-2.0
//! Arms: the ways of running the same guests that a plan compares.
//!
//! Invariant: an arm says only what it changes, by the keys of a machine's configuration (docs/configuration.md), so that
//! its machine can be run by hand; whether the values are right is for whoever knows machines.

use serde::{Deserialize, Serialize};

/// What an arm changes about a machine. Keys and values are those of a machine's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArmSettings {
    /// What is done about pause loops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// Where pause events come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_source: Option<String>,
    /// How a CPU is given away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_mechanism: Option<String>,
    /// Parameters of policy and sources, `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pause_set: Vec<String>,
    /// Where vCPU threads run. Absent: pinned to the host CPUs of the experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Paravirtual features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv: Option<String>,
    /// Instructions that do not leave the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_exits: Option<String>,
    /// Longest halt polling, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt_poll: Option<u32>,
}

impl ArmSettings {
    /// Whether each pause event is put to the policy: not if nothing is done, or always the same.
    #[must_use]
    pub fn asks_policy(&self) -> bool {
        matches!(self.pause.as_deref(), None | Some("act" | "observe"))
            && matches!(self.pause_mechanism.as_deref(), None | Some("auto"))
    }
}

/// One way of running the guests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in tables.
    pub name: String,
    /// What it changes.
    pub settings: ArmSettings,
    /// Line of the plan that asks for it, from 1.
    pub line: usize,
}

/// Arms that need no table of their own: name, mode, mechanism.
const KNOWN: [(&str, &str, Option<&str>); 7] = [
    ("off", "off", None),
    ("kernel", "kernel", None),
    ("observe", "observe", None),
    ("yield", "act", Some("yield")),
    ("park", "act", Some("park")),
    ("hypercall", "act", Some("hypercall")),
    ("act", "act", None),
];

/// Names of the arms that need no table.
pub(super) fn known_names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(name, ..)| *name)
}

/// The settings of an arm that needs no table.
pub(super) fn known(name: &str) -> Option<ArmSettings> {
    let (_, pause, mechanism) = KNOWN.iter().find(|(known, ..)| *known == name)?;
    Some(ArmSettings {
        pause: Some((*pause).to_owned()),
        pause_mechanism: mechanism.map(str::to_owned),
        ..ArmSettings::default()
    })
}
