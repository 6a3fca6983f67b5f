// SPDX-License-Identifier: Apache-2.0
//! What the report says of placement: what was asked for, what was applied, and where the kernel says things are.

use std::collections::BTreeMap;

use policy::placement::Rule;
use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode};

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
