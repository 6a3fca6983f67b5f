// SPDX-License-Identifier: Apache-2.0
//! What the report says of placement: what was asked for, what was applied, and where the kernel says things are.

use std::collections::BTreeMap;

use policy::placement::Rule;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode};

use crate::pause::effective::Grant;

/// Where a machine was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementReport {
    /// What was asked for, as `--placement` spells it.
    pub asked: String,
    /// CPUs claimed in the registry; absent if nothing was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claimed: Option<CpuSet<HostCpu>>,
    /// CPUs of the threads that are no vCPUs; absent if they may go anywhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub other_threads: Option<CpuSet<HostCpu>>,
    /// What could not be had, and what is shared with other VMs.
    pub notes: Vec<String>,
    /// The memory of each guest node; empty where nothing was decided about it.
    pub memory: Vec<NodeMemoryReport>,
    /// Whether the vCPU threads share cores with each other only; absent if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_scheduling: Option<Grant>,
    /// What was done while the guest ran; absent if nothing was decided then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub live: Option<LivePlacementReport>,
}

/// What placement did while the guest ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivePlacementReport {
    /// Looks at the loads.
    pub looks: u64,
    /// Times the host, or the claims on it, were found changed.
    pub host_changes: u64,
    /// Changes of affinity that the kernel refused.
    pub refused: u64,
    /// Time that looking and deciding took.
    pub spent_us: u64,
    /// vCPUs moved, by rule; a rule that moved none has no key.
    pub moves: BTreeMap<Rule, u64>,
    /// The last moves, oldest first, at most 256.
    pub last: Vec<MoveReport>,
    /// In which ways the lengths of the CPUs' runqueues were known.
    #[serde(default)]
    pub runqueues: Vec<Grant>,
    /// Pairs of vCPUs that keep yielding to each other.
    #[serde(default)]
    pub pairs: PairsReport,
    /// Memory of guest nodes that followed its vCPUs, oldest first.
    #[serde(default)]
    pub migrations: Vec<MigrationReport>,
}

/// Pairs of vCPUs that were brought together because they keep yielding to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairsReport {
    /// To see whether that helps.
    pub tried: u64,
    /// Of these, how many it helped.
    pub helped: u64,
    /// Taken apart again.
    pub undone: u64,
}

/// Memory of a guest node that followed its vCPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationReport {
    /// Since the guest started.
    pub at_ms: u64,
    /// The guest node.
    pub node: u32,
    /// From which host node.
    pub from: HostNode,
    /// To which.
    pub to: HostNode,
    /// How long the kernel took.
    pub took_us: u64,
    /// Pages that the kernel was asked for afterwards.
    pub asked_pages: u64,
    /// Of these, how many were on which host node.
    pub found_pages: BTreeMap<HostNode, u64>,
}

/// One vCPU's move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveReport {
    /// Since the guest started.
    pub at_ms: u64,
    /// Who.
    pub vcpu: u32,
    /// From where; absent for a CPU that was gone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<HostCpu>,
    /// To where.
    pub to: HostCpu,
    /// The vCPU that went the other way; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub swap_with: Option<u32>,
    /// The rule that decided.
    pub rule: Rule,
    /// The CPU's score by that rule.
    pub score: i64,
    /// The CPU that came second; absent if there was no other.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runner_up: Option<HostCpu>,
}

/// Where a guest node's memory was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemoryReport {
    /// The guest node.
    pub node: u32,
    /// How it is tied: `default`, `preferred`, `bind` or `interleave`.
    pub policy: String,
    /// To which host nodes.
    pub host_nodes: CpuSet<HostNode>,
    /// Pages that the kernel was asked for at the end of the run; 0 if it does not answer.
    pub asked_pages: u64,
    /// Of these, how many were on which host node; the others were never touched.
    pub found_pages: BTreeMap<HostNode, u64>,
}

/// Where a vCPU thread was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuPlacementReport {
    /// CPUs the thread may use.
    pub cpus: CpuSet<HostCpu>,
    /// The rule that decided at start.
    pub rule: Rule,
}
