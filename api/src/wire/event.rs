// SPDX-License-Identifier: Apache-2.0
//! `/events`: what happened, in order.

use serde::{Deserialize, Serialize};
use topology::id::{HostCpu, VcpuIndex};
use utoipa::ToSchema;

use super::{Generation, VmState};

/// What happened. `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// The machine's state changed.
    StateChanged {
        /// To what.
        state: VmState,
        /// Changes of the machine so far.
        generation: Generation,
        /// Who did it, or how it ended.
        why: String,
    },
    /// Settings were changed.
    SettingsChanged {
        /// Which: `pause`, `placement`, `affinity` or `thresholds`.
        what: String,
        /// Changes of the machine so far.
        generation: Generation,
    },
    /// The guest reported a panic.
    GuestPanic {
        /// Whether the guest deals with it itself, a crash kernel being loaded.
        crash_loaded: bool,
    },
    /// Placement moved a vCPU.
    PlacementMoved {
        /// Who.
        #[schema(value_type = u32)]
        vcpu: VcpuIndex,
        /// From where; absent for a CPU that was gone.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        #[schema(value_type = Option<u32>)]
        from: Option<HostCpu>,
        /// To where.
        #[schema(value_type = u32)]
        to: HostCpu,
        /// The rule that decided.
        rule: String,
    },
    /// Pause events crossed the threshold, upwards or downwards.
    PausePressure {
        /// Whether they are above it now.
        above: bool,
        /// Pause events a second over all vCPUs.
        events_per_s: u64,
        /// The threshold.
        threshold_per_s: u64,
    },
    /// Stolen time crossed the threshold, upwards or downwards.
    Steal {
        /// Whether it is above it now.
        above: bool,
        /// Part of the vCPUs' time that was spent runnable without a CPU, in thousandths.
        permille: u32,
        /// The threshold, in thousandths.
        threshold_permille: u32,
    },
    /// Events that this client has not seen are gone: it came too late, or read too slowly.
    Gap {
        /// How many.
        missed: u64,
    },
}

impl EventKind {
    /// The value of `kind`, which is the name of the server-sent event too.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "state_changed",
            Self::SettingsChanged { .. } => "settings_changed",
            Self::GuestPanic { .. } => "guest_panic",
            Self::PlacementMoved { .. } => "placement_moved",
            Self::PausePressure { .. } => "pause_pressure",
            Self::Steal { .. } => "steal",
            Self::Gap { .. } => "gap",
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Counts up by one from 1; a gap has the id of the last event that is gone.
    pub id: u64,
    /// When, in nanoseconds of the monotonic clock of the host.
    pub at_ns: u64,
    /// What.
    #[serde(flatten)]
    pub what: EventKind,
}
