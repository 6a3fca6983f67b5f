// SPDX-License-Identifier: Apache-2.0
//! The diagnosis as plain values, to be shown as text or as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::domains::{Domain, packages_across_nodes};
use super::{Evidence, Finding, Remark, distances};
use crate::cpu_set::CpuSet;
use crate::cpuid::{DecodedCpu, DecodedTopology, Vendor};
use crate::guest::Position;
use crate::id::{ApicId, NodeId, VcpuIndex};

/// Below this many bytes Linux 6.1 leaves out a node (arch/x86/include/asm/numa.h, NODE_MIN_SIZE, since removed).
const NODE_MIN_BYTES: u64 = 4 << 20;

/// A cache of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// `L1d`, `L1i`, `L2`, `L3`.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The CPUs that share it.
    pub shared_by: CpuSet<VcpuIndex>,
}

/// A CPU as the guest will see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReport {
    /// Its number, ours and Linux'.
    pub cpu: VcpuIndex,
    /// Its APIC id.
    pub apic_id: ApicId,
    /// Where it sits.
    #[serde(flatten)]
    pub position: Position,
    /// Its node.
    pub node: NodeId,
    /// Its caches.
    pub caches: Vec<CacheReport>,
    /// Its scheduler domains, lowest first.
    pub domains: Vec<Domain>,
}

/// A node as the guest will see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Its number.
    pub node: NodeId,
    /// Its CPUs.
    pub cpus: CpuSet<VcpuIndex>,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// The distance from it to every node, in the order of the report.
    pub distances: Vec<u8>,
}

/// The diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The CPUs in order.
    pub cpus: Vec<CpuReport>,
    /// The nodes, ascending.
    pub nodes: Vec<NodeReport>,
    /// What is wrong: nothing, or the guest is not to be started.
    pub findings: Vec<Finding>,
    /// What may surprise.
    pub remarks: Vec<Remark>,
}

impl Report {
    /// Whether the guest may be started.
    #[must_use]
    pub const fn is_healthy(&self) -> bool {
        self.findings.is_empty()
    }
}

pub(super) fn report(
    evidence: &Evidence<'_>,
    nodes: &[NodeId],
    domains: Vec<Vec<Domain>>,
    (findings, remarks): (Vec<Finding>, Vec<Remark>),
) -> Report {
    let cpus = (0..).map(VcpuIndex).zip(&evidence.seen.cpus).zip(nodes).zip(domains);
    let cpu = |(((cpu, seen), node), domains): (((VcpuIndex, &DecodedCpu), &NodeId), Vec<Domain>)| CpuReport {
        cpu,
        apic_id: seen.apic_id,
        position: seen.position,
        node: *node,
        caches: caches(seen),
        domains,
    };
    Report { cpus: cpus.map(cpu).collect(), nodes: node_reports(evidence, nodes), findings, remarks }
}

fn caches(seen: &DecodedCpu) -> Vec<CacheReport> {
    let cache = |cache: &crate::cpuid::DecodedCache| CacheReport {
        name: cache.spec.name(),
        size_bytes: cache.spec.size_bytes,
        shared_by: cache.shared_by.clone(),
    };
    seen.caches.iter().map(cache).collect()
}

fn node_reports(evidence: &Evidence<'_>, nodes: &[NodeId]) -> Vec<NodeReport> {
    let distance = distances::linux(evidence.acpi);
    let all = distances::nodes(evidence.acpi);
    let memory = memory(evidence);
    let report = |node: &NodeId| NodeReport {
        node: *node,
        cpus: (0..).map(VcpuIndex).zip(nodes).filter(|(_, of)| *of == node).map(|(cpu, _)| cpu).collect(),
        memory_bytes: memory.get(node).copied().unwrap_or(0),
        distances: all.iter().map(|to| distance(*node, *to)).collect(),
    };
    all.iter().map(report).collect()
}

/// Memory by node, as the SRAT has it; without one all is node 0's.
fn memory(evidence: &Evidence<'_>) -> BTreeMap<NodeId, u64> {
    let mut memory: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut add = |node, bytes: u64| {
        let sum = memory.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    };
    match &evidence.acpi.srat {
        Some(srat) => srat.memory.iter().for_each(|range| add(range.node, range.len_bytes)),
        None => evidence.ram.iter().for_each(|range| add(NodeId(0), range.len_bytes)),
    }
    memory
}

/// The first package with a number of dies that leaf 0x8000001E has no encoding for.
fn node_ids_with_gaps(seen: &DecodedTopology) -> Option<Remark> {
    let mut dies: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for cpu in seen.cpus.iter().filter(|_| seen.vendor == Vendor::Amd) {
        dies.entry(cpu.position.package).or_default().insert(cpu.position.die);
    }
    let mut counts = dies.into_iter().map(|(package, dies)| (package, u32::try_from(dies.len()).unwrap_or(u32::MAX)));
    let (package, dies) = counts.find(|(_, dies)| ![1, 2, 4, 8].contains(dies))?;
    Some(Remark::NodeIdsWithGaps { package, dies })
}

pub(super) fn remarks(evidence: &Evidence<'_>, nodes: &[NodeId]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for package in packages_across_nodes(evidence.seen, nodes) {
        remarks.push(Remark::NumaInPackage { package });
    }
    let wider_than_a_core = |cpu: &DecodedCpu| {
        let core = Position { thread: 0, ..cpu.position };
        let in_core = |other: VcpuIndex| {
            let other = evidence.seen.cpus.get(other.index());
            other.is_some_and(|other| Position { thread: 0, ..other.position } == core)
        };
        cpu.caches.iter().any(|cache| cache.spec.level == 2 && !cache.shared_by.iter().all(in_core))
    };
    if evidence.seen.vendor == Vendor::Amd && evidence.seen.cpus.iter().any(wider_than_a_core) {
        remarks.push(Remark::ClustersUnseen);
    }
    remarks.extend(node_ids_with_gaps(evidence.seen));
    let small = memory(evidence).into_iter().filter(|(_, bytes)| *bytes < NODE_MIN_BYTES);
    remarks.extend(small.map(|(node, bytes)| Remark::SmallNode { node, bytes }));
    let distance = distances::linux(evidence.acpi);
    let all = distances::nodes(evidence.acpi);
    for (place, from) in all.iter().enumerate() {
        for to in &all[place + 1..] {
            let (there, back) = (distance(*from, *to), distance(*to, *from));
            if there != back {
                remarks.push(Remark::Asymmetric { from: *from, to: *to, there, back });
            }
        }
    }
    remarks
}
