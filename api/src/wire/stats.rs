// SPDX-License-Identifier: Apache-2.0
//! `/stats`: sums over the machine, and what the monitor itself costs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Ledger, PairCounts, PauseCounters};

/// What the monitor itself costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MonitorStats {
    /// CPU time of the process, guest included, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, guest included, in bytes.
    pub rss_bytes: u64,
    /// Threads.
    pub threads: u32,
    /// Open file descriptors.
    pub open_files: u32,
}

/// What placement did while the guest ran; empty where nothing is decided then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementStats {
    /// Looks at the loads.
    pub looks: u64,
    /// Changes of affinity that the kernel refused.
    pub refused: u64,
    /// vCPUs moved, by rule; a rule that moved none is absent.
    pub moves: BTreeMap<String, u64>,
    /// Times the host, its claims or the threads' affinities were found changed.
    pub host_changes: u64,
    /// Pairs that were brought together.
    pub pairs: PairCounts,
    /// Times the memory of a guest node followed its vCPUs.
    pub migrations: u64,
    /// Time that looking and deciding took, in nanoseconds.
    pub spent_ns: u64,
}

/// What the devices counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceStats {
    /// Bytes of the guest's console that were lost.
    pub dropped_bytes: u64,
    /// Interrupts that could not be raised.
    pub interrupts_failed: u64,
    /// Accesses that no device answered.
    pub unclaimed_accesses: u64,
}

/// What this API counted. Filled in by the server, whatever the monitor says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiStats {
    /// Requests answered.
    pub requests: u64,
    /// Of these, with a status of 400 and above.
    pub refused: u64,
    /// Connections open now.
    pub connections: u32,
    /// Connections that were turned away.
    pub connections_refused: u64,
    /// Streams open now.
    pub streams: u32,
}

/// Sums over the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// When this was seen: nanoseconds of the monotonic clock of the host.
    pub at_ns: u64,
    /// Sum of the vCPUs' time in the run loop, in nanoseconds.
    pub run_loop_ns: u64,
    /// Sum of the vCPUs' ledgers.
    pub ledger_ns: Ledger,
    /// Sum of the vCPUs' exits, by kind.
    pub exits: BTreeMap<String, u64>,
    /// Sum of what was done about pause loops.
    pub pause: PauseCounters,
    /// What placement did while the guest ran.
    pub placement: PlacementStats,
    /// KVM's own counters of the VM; empty where the kernel has none.
    pub kvm: BTreeMap<String, u64>,
    /// What the devices counted.
    pub devices: DeviceStats,
    /// What the monitor costs.
    pub monitor: MonitorStats,
    /// What this API counted.
    pub api: ApiStats,
}
