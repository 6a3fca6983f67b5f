// SPDX-License-Identifier: Apache-2.0
//! `/placement`: where vCPU threads and guest memory are, and why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};
use utoipa::ToSchema;

use super::Generation;

/// How placement decides (docs/placement.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementMode {
    /// By the host's shape, and goes on deciding.
    Auto,
    /// Once, as far apart as possible.
    Spread,
    /// Once, as close together as possible.
    Pack,
    /// Not at all: the kernel does.
    None,
    /// Every thread on the CPUs that were named.
    Pin,
}

/// The CPU that came second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunnerUp {
    /// The CPU.
    #[schema(value_type = u32)]
    pub cpu: HostCpu,
    /// Its score by the rule that decided.
    pub score: i64,
}

/// One vCPU's place, and the decision that put it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// Who.
    #[schema(value_type = u32)]
    pub vcpu: VcpuIndex,
    /// The CPU that was chosen; absent where the kernel chooses.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub cpu: Option<HostCpu>,
    /// CPUs that the thread may use.
    #[schema(value_type = String, example = "0-3")]
    pub cpus: CpuSet<HostCpu>,
    /// The rule that decided; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// The CPU's score by that rule; absent where none decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub score: Option<i64>,
    /// What came second; absent if there was no other CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runner_up: Option<RunnerUp>,
}

/// A vCPU that was moved while the guest ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// Since the guest started, in milliseconds.
    pub at_ms: u64,
    /// Who.
    #[schema(value_type = u32)]
    pub vcpu: VcpuIndex,
    /// From where; absent for a CPU that was gone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub from: Option<HostCpu>,
    /// To where.
    #[schema(value_type = u32)]
    pub to: HostCpu,
    /// The vCPU that went the other way; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub swap_with: Option<VcpuIndex>,
    /// The rule that decided.
    pub rule: String,
    /// The CPU's score by that rule.
    pub score: i64,
    /// What came second; absent if there was no other CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runner_up: Option<RunnerUp>,
}

/// How a guest node's memory is tied to the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeMemory {
    /// The guest node.
    #[schema(value_type = u32)]
    pub node: NodeId,
    /// `default`, `preferred`, `bind` or `interleave`.
    pub policy: String,
    /// To which host nodes.
    #[schema(value_type = String, example = "0")]
    pub host_nodes: CpuSet<HostNode>,
}

/// Pairs of vCPUs that keep yielding to each other, and were brought together to see whether that helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairCounts {
    /// Brought together.
    pub tried: u64,
    /// Of these, how many it helped.
    pub helped: u64,
    /// Taken apart again.
    pub undone: u64,
}

/// Where the machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placement {
    /// Changes of the machine so far.
    pub generation: Generation,
    /// How it is decided.
    pub mode: PlacementMode,
    /// The CPUs that mode `pin` names; absent in other modes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<String>, example = "0-3")]
    pub pin: Option<CpuSet<HostCpu>>,
    /// Whether other machines are kept off these CPUs.
    pub exclusive: bool,
    /// The rules that can be switched, and whether each is on.
    pub rules: BTreeMap<String, bool>,
    /// One entry a vCPU, in the order of the index; empty where nothing was decided.
    pub plan: Vec<Place>,
    /// Memory of the guest nodes; empty where nothing was decided.
    pub memory: Vec<NodeMemory>,
    /// CPUs claimed in the host's registry; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<String>, example = "0-3")]
    pub claimed: Option<CpuSet<HostCpu>>,
    /// CPUs of the monitor's other threads; absent if they may go anywhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<String>, example = "4-7")]
    pub other_threads: Option<CpuSet<HostCpu>>,
    /// What could not be had, and what is shared with other machines.
    pub notes: Vec<String>,
    /// Looks at the loads since the guest started.
    pub looks: u64,
    /// Changes of affinity that the kernel refused.
    pub refused: u64,
    /// vCPUs moved, by rule; a rule that moved none is absent.
    pub moves: BTreeMap<String, u64>,
    /// The last moves, oldest first, at most 256.
    pub last_moves: Vec<Move>,
    /// Times the host, its claims or the threads' affinities were found changed.
    pub host_changes: u64,
    /// Pairs that were brought together.
    pub pairs: PairCounts,
    /// Times the memory of a guest node followed its vCPUs.
    pub migrations: u64,
    /// Time that looking and deciding took, in nanoseconds.
    pub spent_ns: u64,
}

/// Body of `PATCH /placement`: what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacementChange {
    /// How it is decided from now on. A decision is made at once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false)]
    pub mode: Option<PlacementMode>,
    /// The CPUs of mode `pin`; needed with it, and not allowed with another.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(
        value_type = Option<String>,
        nullable = false,
        example = "0-3",
        pattern = "^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$"
    )]
    pub pin: Option<CpuSet<HostCpu>>,
    /// Rules to switch on or off, by name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(nullable = false)]
    pub rules: Option<BTreeMap<String, bool>>,
}
