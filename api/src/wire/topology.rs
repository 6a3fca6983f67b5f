// SPDX-License-Identifier: Apache-2.0
//! `/topology`: what the guest is told of its own shape.

use serde::{Deserialize, Serialize};
use topology::cache;
use topology::cpu_set::CpuSet;
use topology::guest::GuestTopology;
use topology::id::{ApicId, NodeId, VcpuIndex};
use utoipa::ToSchema;

/// Counts, each per one of the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shape {
    /// Packages in the machine.
    pub packages: u32,
    /// Dies in a package.
    pub dies: u32,
    /// Clusters in a die.
    pub clusters: u32,
    /// Cores in a cluster of the largest package.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

/// Where a vCPU sits, each number 0-based within the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VcpuPlace {
    /// Its index.
    #[schema(value_type = u32)]
    pub index: VcpuIndex,
    /// Its (x2)APIC id.
    #[schema(value_type = u32)]
    pub apic_id: ApicId,
    /// Package in the machine.
    pub package: u32,
    /// Die in the package.
    pub die: u32,
    /// Cluster in the die.
    pub cluster: u32,
    /// Core in the cluster.
    pub core: u32,
    /// Thread in the core.
    pub thread: u32,
    /// NUMA node.
    #[schema(value_type = u32)]
    pub node: NodeId,
}

/// A NUMA node of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its number.
    #[schema(value_type = u32)]
    pub node: NodeId,
    /// Its vCPUs; may be none.
    #[schema(value_type = String, example = "0-3")]
    pub vcpus: CpuSet<VcpuIndex>,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// Distance to each node, in the order of the numbers; 10 is local.
    pub distances: Vec<u8>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// A kind of cache that the guest has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cache {
    /// 1 to 3.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size of one, in bytes.
    pub size_bytes: u64,
    /// The vCPUs that share one, for each of them.
    #[schema(value_type = Vec<String>, example = json!(["0-3", "4-7"]))]
    pub shared_by: Vec<CpuSet<VcpuIndex>>,
}

/// The guest's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// The counts.
    pub shape: Shape,
    /// One entry a vCPU, in the order of the index.
    pub vcpus: Vec<VcpuPlace>,
    /// The NUMA nodes.
    pub nodes: Vec<Node>,
    /// The caches.
    pub caches: Vec<Cache>,
}

impl Topology {
    /// The shape of a machine.
    #[must_use]
    pub fn of(machine: &GuestTopology) -> Self {
        let shape = machine.shape();
        Self {
            shape: Shape {
                packages: shape.packages,
                dies: shape.dies,
                clusters: shape.clusters,
                cores: shape.cores,
                threads: shape.threads,
            },
            vcpus: machine.vcpus().map(|index| place(machine, index)).collect(),
            nodes: machine.nodes().iter().map(|one| node(machine, one)).collect(),
            caches: machine.caches().iter().map(|spec| cache(machine, spec)).collect(),
        }
    }
}

fn place(machine: &GuestTopology, index: VcpuIndex) -> VcpuPlace {
    let position = machine.position(index);
    VcpuPlace {
        index,
        apic_id: machine.apic_id(index),
        package: position.package,
        die: position.die,
        cluster: position.cluster,
        core: position.core,
        thread: position.thread,
        node: machine.node_of(index),
    }
}

fn node(machine: &GuestTopology, node: &topology::guest::Node) -> Node {
    Node {
        node: node.id,
        vcpus: node.cpus.clone(),
        memory_bytes: node.memory_bytes,
        distances: machine.nodes().iter().map(|other| machine.distance(node.id, other.id)).collect(),
    }
}

fn cache(machine: &GuestTopology, spec: &cache::CacheSpec) -> Cache {
    let scope = machine.cache_scope(spec);
    let mut shared_by: Vec<CpuSet<VcpuIndex>> = Vec::new();
    let mut unit_of_last = None;
    // Indices run through the machine unit by unit, so the CPUs that share a cache are neighbours.
    for vcpu in machine.vcpus() {
        let unit = machine.position(vcpu).first_of(scope);
        if unit_of_last != Some(unit) {
            shared_by.push(CpuSet::new());
            unit_of_last = Some(unit);
        }
        if let Some(last) = shared_by.last_mut() {
            last.insert(vcpu);
        }
    }
    let kind = match spec.kind {
        cache::CacheKind::Data => CacheKind::Data,
        cache::CacheKind::Instruction => CacheKind::Instruction,
        cache::CacheKind::Unified => CacheKind::Unified,
    };
    Cache { level: spec.level, kind, size_bytes: spec.size_bytes, shared_by }
}

#[cfg(test)]
mod tests {
    use topology::guest::{ShapeRequest, TopologyRequest};

    use super::*;

    #[test]
    fn a_cache_lists_who_shares_it() {
        let shape = ShapeRequest { sockets: Some(2), cores: Some(2), threads: Some(2), ..ShapeRequest::default() };
        let request = TopologyRequest { shape, ..TopologyRequest::even(8, 2, 64 << 20).unwrap() };
        let machine = GuestTopology::new(&request).unwrap();
        let told = Topology::of(&machine);
        let lists = |level| {
            let cache = told.caches.iter().find(|cache| cache.level == level).unwrap();
            cache.shared_by.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lists(2), ["0-1", "2-3", "4-5", "6-7"]);
        assert_eq!(lists(3), ["0-3", "4-7"]);
        assert_eq!(told.nodes[1].vcpus.to_string(), "4-7");
        assert_eq!(told.nodes[1].distances, [20, 10]);
        assert_eq!((told.vcpus[6].package, told.vcpus[6].core, told.vcpus[6].node), (1, 1, NodeId(1)));
    }
}
