// SPDX-License-Identifier: Apache-2.0
//! `/vm`: the machine, its one state field, and the generation that changes are checked against.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Configuration;

/// Counts the changes of a machine's state and settings, whoever made them. The entity tag of a response is this number.
///
/// A change that names an older one with `If-Match` is refused. What placement or the guest does by itself does not
/// count; a change of state does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a machine is in its life. There is no other field that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmState {
    /// It is put together, and no guest code has run.
    Created,
    /// Its vCPUs run guest code.
    Running,
    /// Its vCPUs stand still; they go on where they were.
    Paused,
    /// It has come to its end and does not run again.
    Stopped,
}

impl VmState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Created, Self::Running, Self::Paused, Self::Stopped];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for VmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A state that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WantedState {
    /// Start a created machine, or let a paused one go on.
    Running,
    /// Stop all vCPUs of a running machine where they are.
    Paused,
    /// End the machine at once, whatever the guest does. `POST /vm/power-button` asks the guest instead.
    Stopped,
}

impl WantedState {
    /// The state that is reached.
    #[must_use]
    pub const fn reached(self) -> VmState {
        match self {
            Self::Running => VmState::Running,
            Self::Paused => VmState::Paused,
            Self::Stopped => VmState::Stopped,
        }
    }

    /// Whether a machine in state `from` can be brought there. A machine that is there already can.
    #[must_use]
    pub const fn is_reached_from(self, from: VmState) -> bool {
        match (self, from) {
            (Self::Running, VmState::Created | VmState::Running | VmState::Paused)
            | (Self::Paused, VmState::Running | VmState::Paused)
            | (Self::Stopped, _) => true,
            (Self::Running, VmState::Stopped) | (Self::Paused, VmState::Created | VmState::Stopped) => false,
        }
    }
}

/// Body of `PUT /vm/state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StateChange {
    /// The state to bring the machine to.
    pub state: WantedState,
}

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exit {
    /// Exit status that the process has or will have: 0, 1, 32, 33 or 34.
    pub status: u8,
    /// The same in words.
    pub reason: String,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Vm {
    /// Where it is in its life.
    pub state: VmState,
    /// Changes so far.
    pub generation: Generation,
    /// What it was asked to be, with the defaults put in.
    pub configuration: Configuration,
    /// Number of vCPUs.
    pub cpus: u32,
    /// Number of NUMA nodes.
    pub nodes: u32,
    /// Memory over all nodes, in bytes.
    pub memory_bytes: u64,
    /// Since it was started, in nanoseconds of the monotonic clock, pauses included; absent before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uptime_ns: Option<u64>,
    /// How it ended; absent before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<Exit>,
    /// Process id of the monitor.
    pub pid: u32,
    /// Version of the monitor.
    pub version: String,
}
