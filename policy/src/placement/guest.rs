// SPDX-License-Identifier: Apache-2.0
//! What placement needs to know of a guest, and what the user and other VMs want.

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::guest::GuestTopology;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};

use super::Rules;

/// Where vCPUs go at start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Each guest node on a host node, whole cores first, guest clusters on host clusters.
    #[default]
    Auto,
    /// As far apart as the host allows: nodes, then caches, clusters and cores in turn.
    Spread,
    /// As close together as the host allows: all threads of a core, then the next core.
    Pack,
    /// Wherever the kernel puts them within the allowed CPUs.
    None,
    /// Every vCPU thread on exactly these CPUs.
    Pin(CpuSet<HostCpu>),
}

/// One vCPU's place in the guest, as numbers that are equal for CPUs that share the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestCpu {
    /// Index into [`Guest::nodes`].
    pub node: usize,
    /// Cluster, counted over the whole guest.
    pub cluster: u32,
    /// Core, counted over the whole guest.
    pub core: u32,
}

/// A guest node and the wishes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestNode {
    /// Its number.
    pub id: NodeId,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Host node it is bound to by the user.
    pub host_node: Option<HostNode>,
}

/// The guest as placement sees it. vCPU `i` is `vcpus[i]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// vCPUs by index.
    pub vcpus: Vec<GuestCpu>,
    /// Nodes.
    pub nodes: Vec<GuestNode>,
}

impl Guest {
    /// The guest of a topology, without wishes.
    #[must_use]
    pub fn new(topology: &GuestTopology) -> Self {
        let nodes: Vec<GuestNode> = topology
            .nodes()
            .iter()
            .map(|node| GuestNode { id: node.id, memory_bytes: node.memory_bytes, host_node: None })
            .collect();
        let (mut clusters, mut cores) = (Vec::new(), Vec::new());
        let number = |seen: &mut Vec<[u32; 4]>, key: [u32; 4]| {
            // vCPUs come in order of position, so a new group is always the last one.
            if seen.last() != Some(&key) {
                seen.push(key);
            }
            u32::try_from(seen.len() - 1).unwrap_or(u32::MAX)
        };
        let vcpu = |index: VcpuIndex| {
            let at = topology.position(index);
            let id = topology.node_of(index);
            GuestCpu {
                node: nodes.iter().position(|node| node.id == id).unwrap_or(0),
                cluster: number(&mut clusters, [at.package, at.die, at.cluster, 0]),
                core: number(&mut cores, [at.package, at.die, at.cluster, at.core]),
            }
        };
        Self { vcpus: topology.vcpus().map(vcpu).collect(), nodes }
    }

    /// Most threads of one core.
    pub(super) fn threads_per_core(&self) -> usize {
        self.vcpus.chunk_by(|a, b| a.core == b.core).map(<[_]>::len).max().unwrap_or(1)
    }
}

/// What another VM has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its CPUs.
    pub cpus: CpuSet<HostCpu>,
    /// Whether it wants them alone: they are then not used at all.
    pub exclusive: bool,
}

/// Everything a start placement depends on, beside the host and the guest.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The mode.
    pub mode: Mode,
    /// Rules that are switched on.
    pub rules: Rules,
    /// Claims of other VMs on this host.
    pub claims: Vec<Claim>,
}
