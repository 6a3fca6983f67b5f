// SPDX-License-Identifier: Apache-2.0
//! What a guest looks like: packages, dies, clusters, cores, threads, caches and NUMA nodes.
//!
//! A [`TopologyRequest`] is what a user asked for, plain and unchecked; [`GuestTopology::new`] is its only way to
//! become a machine, and everything downstream (CPUID, ACPI, memory map, placement) reads the machine alone.
//! Invariants: every CPU has one position, one APIC id and one node; no core, cluster or die crosses a node; CPU 0 has
//! APIC id 0; every node has memory.

mod nodes;
mod shape;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::apic::{ApicError, ApicLayout, ApicLimits};
use crate::cache::{self, CacheScope, CacheSpec};
use crate::cpu_set::CpuSet;
use crate::id::{ApicId, NodeId, VcpuIndex};

pub use crate::error::TopologyError;
pub use crate::limits::{MAX_CPUS, MAX_MEMORY_BYTES, MAX_NODES, PAGE_BYTES};
pub use crate::place::{Position, Shape};

/// The distance of a node to itself, and to another one when nothing is said (ACPI 6.5, section 5.2.17).
pub const LOCAL_DISTANCE: u8 = 10;
/// See [`LOCAL_DISTANCE`]; the value that Linux assumes too (`REMOTE_DISTANCE`).
pub const REMOTE_DISTANCE: u8 = 20;

/// A machine as a user asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRequest {
    /// Number of CPUs, 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// How they are grouped; what is left out is derived.
    pub shape: ShapeRequest,
    /// NUMA nodes, 1 to [`MAX_NODES`]; a node's id is its place in the list.
    pub nodes: Vec<NodeRequest>,
    /// Distances as (from, to, distance), 11 to 254. None at all: [`REMOTE_DISTANCE`] between any two nodes. When
    /// some are given, every pair needs one; a direction that is not given is the same as the other.
    pub distances: Vec<(NodeId, NodeId, u8)>,
}

/// How CPUs are grouped: each count is per one of the level above.
///
/// Missing counts are derived as QEMU does since 6.2: `dies`, `clusters` and `threads` are 1, `cores` take the rest,
/// and `sockets` take it when `cores` is given. When several nodes have CPUs and `sockets` is missing, no package
/// crosses a node, and with `cores` missing too each node is one package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeRequest {
    /// Packages in the machine.
    pub sockets: Option<u32>,
    /// Dies in a package; each has a last-level cache.
    pub dies: Option<u32>,
    /// Clusters in a die; the cores of each share an L2 cache when there are several.
    pub clusters: Option<u32>,
    /// Cores in a cluster.
    pub cores: Option<u32>,
    /// Threads in a core.
    pub threads: Option<u32>,
}

/// A NUMA node as a user asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRequest {
    /// Its CPUs; none makes a node of memory only.
    pub cpus: CpuSet<VcpuIndex>,
    /// Its memory in bytes, whole pages, not 0.
    pub memory_bytes: u64,
}

impl TopologyRequest {
    /// CPUs and memory dealt evenly to `nodes` nodes: neighbouring CPUs together, the first nodes one more when they
    /// do not come out even; memory in steps of 2 MiB (pages when there is less), the last node taking the rest.
    ///
    /// # Errors
    /// Counts that no machine can have: [`TopologyError::NoCpus`], [`TopologyError::TooManyCpus`],
    /// [`TopologyError::NodeCount`].
    pub fn even(cpus: u32, nodes: u32, memory_bytes: u64) -> Result<Self, TopologyError> {
        let request = Self { cpus, ..Self::default() };
        shape::check_counts(&request)?;
        nodes::check_count(NodeId(nodes).index())?;
        let count = u64::from(nodes);
        let step = if memory_bytes / count >= 2 << 20 { 2 << 20 } else { PAGE_BYTES };
        let share = memory_bytes / count / step * step;
        let (cpu_share, extra) = (cpus / nodes, cpus % nodes);
        let node = |n: u32| {
            let start = n * cpu_share + n.min(extra);
            let end = start + cpu_share + u32::from(n < extra);
            let rest = if n + 1 == nodes { memory_bytes - share * count } else { 0 };
            NodeRequest { cpus: (start..end).map(VcpuIndex).collect(), memory_bytes: share + rest }
        };
        Ok(Self { nodes: (0..nodes).map(node).collect(), ..request })
    }
}

/// A NUMA node of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number, its place in [`GuestTopology::nodes`].
    pub id: NodeId,
    /// Its CPUs; may be none.
    pub cpus: CpuSet<VcpuIndex>,
    /// Its memory in bytes, whole pages, not 0.
    pub memory_bytes: u64,
}

/// A machine: checked, immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTopology {
    shape: Shape,
    layout: ApicLayout,
    positions: Vec<Position>,
    nodes: Vec<Node>,
    node_of: Vec<NodeId>,
    distances: Vec<u8>,
    caches: Vec<CacheSpec>,
}

impl GuestTopology {
    /// The machine that was asked for, with [`cache::default_caches`].
    ///
    /// # Errors
    /// The first fault found, in the order counts, nodes, memory, distances, shape, shape against nodes.
    pub fn new(request: &TopologyRequest) -> Result<Self, TopologyError> {
        shape::check_counts(request)?;
        let (nodes, node_of) = nodes::checked(request)?;
        let distances = nodes::distances(nodes.len(), &request.distances)?;
        let (shape, positions) = shape::arrange(request, &nodes)?;
        let layout = ApicLayout::new(&shape);
        if layout.die_shift() > 12 {
            return Err(TopologyError::DieTooWide { bits: layout.die_shift() });
        }
        let machine = Self { shape, layout, positions, nodes, node_of, distances, caches: cache::default_caches() };
        machine.check_nodes_keep_units_whole()?;
        Ok(machine)
    }

    /// The same machine with other caches: those of the host, say; an empty list means the default ones.
    ///
    /// # Errors
    /// [`TopologyError::CacheLevel`] and [`TopologyError::CacheGeometry`].
    pub fn with_caches(self, caches: Vec<CacheSpec>) -> Result<Self, TopologyError> {
        Ok(Self { caches: cache::checked(caches)?, ..self })
    }

    /// Whether the interrupt controllers of a host can address every CPU.
    ///
    /// # Errors
    /// The limit that is passed.
    pub fn check_apic(&self, limits: &ApicLimits) -> Result<(), ApicError> {
        limits.check(self.vcpu_count(), self.highest_apic_id())
    }

    /// Number of CPUs, at least 1.
    #[must_use]
    pub fn vcpu_count(&self) -> u32 {
        // At most MAX_CPUS.
        u32::try_from(self.positions.len()).unwrap_or(u32::MAX)
    }

    /// All CPUs in order.
    pub fn vcpus(&self) -> impl ExactSizeIterator<Item = VcpuIndex> + Clone + use<> {
        (0..self.vcpu_count()).map(VcpuIndex)
    }

    /// The counts of the machine.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The fields of its APIC ids.
    #[must_use]
    pub const fn apic_layout(&self) -> &ApicLayout {
        &self.layout
    }

    /// Where a CPU sits. Panics when the machine has no such CPU, as indexing a slice does.
    #[must_use]
    pub fn position(&self, cpu: VcpuIndex) -> Position {
        self.positions[cpu.index()]
    }

    /// APIC id of a CPU. Panics when the machine has no such CPU, as indexing a slice does.
    #[must_use]
    pub fn apic_id(&self, cpu: VcpuIndex) -> ApicId {
        self.layout.apic_id(self.position(cpu))
    }

    /// The highest APIC id of any CPU.
    #[must_use]
    pub fn highest_apic_id(&self) -> ApicId {
        self.positions.iter().map(|&position| self.layout.apic_id(position)).max().unwrap_or(ApicId(0))
    }

    /// Node of a CPU. Panics when the machine has no such CPU, as indexing a slice does.
    #[must_use]
    pub fn node_of(&self, cpu: VcpuIndex) -> NodeId {
        self.node_of[cpu.index()]
    }

    /// The NUMA nodes; a node's id is its place.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Distance from a node to another, 10 to 254. Panics when there is no such node, as indexing a slice does.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.distances[from.index() * self.nodes.len() + to.index()]
    }

    /// Memory of all nodes in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_bytes).sum()
    }

    /// The caches of every CPU, by level, data before instructions.
    #[must_use]
    pub fn caches(&self) -> &[CacheSpec] {
        &self.caches
    }

    /// Who shares a cache: L1 is a core's, L2 a core's or, where a die has several clusters, a cluster's, L3 a die's.
    #[must_use]
    pub const fn cache_scope(&self, cache: &CacheSpec) -> CacheScope {
        match cache.level {
            2 if self.shape.clusters > 1 => CacheScope::Cluster,
            0..=2 => CacheScope::Core,
            _ => CacheScope::Die,
        }
    }

    /// Bits of an APIC id in which the CPUs that share a cache may differ.
    #[must_use]
    pub const fn sharing_bits(&self, cache: &CacheSpec) -> u32 {
        match self.cache_scope(cache) {
            CacheScope::Core => self.layout.core_shift(),
            CacheScope::Cluster => self.layout.cluster_shift(),
            CacheScope::Die => self.layout.die_shift(),
        }
    }

    /// The CPUs of the same core, cluster or die. Panics when the machine has no such CPU.
    #[must_use]
    pub fn siblings(&self, cpu: VcpuIndex, scope: CacheScope) -> CpuSet<VcpuIndex> {
        let unit = self.position(cpu).first_of(scope);
        self.vcpus().filter(|&other| self.position(other).first_of(scope) == unit).collect()
    }

    fn check_nodes_keep_units_whole(&self) -> Result<(), TopologyError> {
        for scope in [CacheScope::Core, CacheScope::Cluster, CacheScope::Die] {
            // The only cluster of a die is the die.
            if scope == CacheScope::Cluster && self.shape.clusters == 1 {
                continue;
            }
            let mut first_of_unit = BTreeMap::new();
            for second in self.vcpus() {
                let first = *first_of_unit.entry(self.position(second).first_of(scope)).or_insert(second);
                let (first_node, second_node) = (self.node_of(first), self.node_of(second));
                if first_node == second_node {
                    continue;
                }
                return Err(match scope {
                    CacheScope::Core => TopologyError::NodeSplitsCore { first, second, first_node, second_node },
                    CacheScope::Cluster => TopologyError::NodeSplitsCluster { first, second, first_node, second_node },
                    CacheScope::Die => TopologyError::NodeSplitsDie { first, second, first_node, second_node },
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
