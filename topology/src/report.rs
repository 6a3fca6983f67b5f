// SPDX-License-Identifier: Apache-2.0
//! A machine as plain data for JSON: what `vmm topology` prints and what scripts read.
//!
//! Last step of the flow, after everything is checked. Keys are stable: they are only added to. Invariant: it says
//! nothing that the machine does not.

use serde::Serialize;

use crate::cache::{CacheKind, CacheScope, CacheSpec};
use crate::cpu_set::CpuSet;
use crate::guest::{GuestTopology, Node, Shape};
use crate::id::{ApicId, NodeId, VcpuIndex};
use crate::memory_map::MemoryMap;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopologyReport {
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory of all nodes in bytes.
    pub memory_bytes: u64,
    /// Counts, each per one of the level above.
    pub shape: Shape,
    /// Caches of every CPU.
    pub caches: Vec<CacheReport>,
    /// NUMA nodes in order.
    pub nodes: Vec<NodeReport>,
    /// Distance from node (row) to node (column).
    pub distances: Vec<Vec<u8>>,
    /// CPUs in order.
    pub vcpus: Vec<VcpuReport>,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// `L1d`, `L1i`, `L2`, `L3`.
    pub name: String,
    /// Level, 1 to 3.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in bytes of each.
    pub size_bytes: u64,
    /// Ways of associativity.
    pub ways: u32,
    /// Size of a line in bytes.
    pub line_bytes: u32,
    /// Who shares one.
    pub shared_by: CacheScope,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: NodeId,
    /// Its CPUs in list format; empty when it has none.
    pub cpus: CpuSet<VcpuIndex>,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Where that memory is.
    pub ranges: Vec<RangeReport>,
}

/// A range of guest-physical addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RangeReport {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

/// A CPU and where it sits, each number within the level above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VcpuReport {
    /// Its index.
    pub index: VcpuIndex,
    /// Its x2APIC id.
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
    /// Its NUMA node.
    pub node: NodeId,
}

impl TopologyReport {
    /// The report of a machine whose memory lies as `map` says.
    #[must_use]
    pub fn new(machine: &GuestTopology, map: &MemoryMap) -> Self {
        let ids = || machine.nodes().iter().map(|node| node.id);
        Self {
            cpus: machine.vcpu_count(),
            memory_bytes: machine.memory_bytes(),
            shape: *machine.shape(),
            caches: caches(machine),
            nodes: nodes(machine, map),
            distances: ids().map(|from| ids().map(|to| machine.distance(from, to)).collect()).collect(),
            vcpus: machine.vcpus().map(|cpu| vcpu(machine, cpu)).collect(),
        }
    }
}

fn caches(machine: &GuestTopology) -> Vec<CacheReport> {
    let report = |cache: &CacheSpec| CacheReport {
        name: cache.name(),
        level: cache.level,
        kind: cache.kind,
        size_bytes: cache.size_bytes,
        ways: cache.ways,
        line_bytes: cache.line_bytes,
        shared_by: machine.cache_scope(cache),
    };
    machine.caches().iter().map(report).collect()
}

fn nodes(machine: &GuestTopology, map: &MemoryMap) -> Vec<NodeReport> {
    let report = |node: &Node| NodeReport {
        node: node.id,
        cpus: node.cpus.clone(),
        memory_bytes: node.memory_bytes,
        ranges: map.ram_of(node.id).map(|ram| RangeReport { start: ram.start, end: ram.end() }).collect(),
    };
    machine.nodes().iter().map(report).collect()
}

fn vcpu(machine: &GuestTopology, index: VcpuIndex) -> VcpuReport {
    let at = machine.position(index);
    VcpuReport {
        index,
        apic_id: machine.apic_id(index),
        package: at.package,
        die: at.die,
        cluster: at.cluster,
        core: at.core,
        thread: at.thread,
        node: machine.node_of(index),
    }
}
