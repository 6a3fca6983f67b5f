// SPDX-License-Identifier: Apache-2.0
//! `/host`: what the machine runs on.

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode};
use utoipa::ToSchema;

/// One online CPU of the host. Groups are numbered over the whole host, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostCpuInfo {
    /// Its number.
    #[schema(value_type = u32)]
    pub cpu: HostCpu,
    /// Its NUMA node.
    #[schema(value_type = u32)]
    pub node: HostNode,
    /// Its package.
    pub package: u32,
    /// Its die.
    pub die: u32,
    /// Its last-level cache.
    pub llc: u32,
    /// Its cluster.
    pub cluster: u32,
    /// Its core.
    pub core: u32,
    /// Its place among the threads of the core.
    pub thread: u32,
    /// How much the host prefers it; higher is better, all 0 without a preference.
    pub rank: u32,
    /// Whether the monitor may use it.
    pub usable: bool,
}

/// One NUMA node of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostNodeInfo {
    /// Its number.
    #[schema(value_type = u32)]
    pub node: HostNode,
    /// Its online CPUs; may be none.
    #[schema(value_type = String, example = "0-3")]
    pub cpus: CpuSet<HostCpu>,
    /// Its memory, in bytes; absent where the host does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// What virtualises guests: `vmx`, `svm`, `software`; absent where `/dev/kvm` cannot be used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kvm: Option<String>,
    /// Release of the kernel.
    pub kernel: String,
    /// The online CPUs, in the order of their numbers.
    pub cpus: Vec<HostCpuInfo>,
    /// The NUMA nodes.
    pub nodes: Vec<HostNodeInfo>,
    /// What the host does not tell of its shape, and what is assumed instead.
    pub assumed: Vec<String>,
}

impl Host {
    /// A host whose shape is known.
    #[must_use]
    pub fn of(host: &HostTopology, kvm: Option<String>, kernel: String) -> Self {
        // At most MAX_CPUS of any of them.
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let cpus = host.cpus().iter().map(|cpu| HostCpuInfo {
            cpu: cpu.id,
            node: host.nodes().get(cpu.node).map_or(HostNode(0), |node| node.id),
            package: number(cpu.package),
            die: number(cpu.die),
            llc: number(cpu.llc),
            cluster: number(cpu.cluster),
            core: number(cpu.core),
            thread: cpu.thread,
            rank: cpu.rank,
            usable: host.usable().contains(cpu.id),
        });
        let nodes = host.nodes().iter().map(|node| HostNodeInfo {
            node: node.id,
            cpus: node.cpus.clone(),
            memory_bytes: node.memory_bytes,
        });
        Self {
            kvm,
            kernel,
            cpus: cpus.collect(),
            nodes: nodes.collect(),
            assumed: host.degradations().iter().map(ToString::to_string).collect(),
        }
    }
}
