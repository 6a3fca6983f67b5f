// SPDX-License-Identifier: Apache-2.0
//! Who shares a core, an L2 and a last-level cache in Linux' eyes: the masks that the scheduler builds on.
//!
//! arch/x86/kernel/smpboot.c: `match_smt`, `match_l2c`, `match_llc`, and `topology_sane`, which warns about CPUs of
//! different nodes and takes them for strangers. arch/x86/kernel/cpu/cacheinfo.c: on Intel the last level is L3, else
//! L2, else the package; on AMD L3, else the package, and the id of an L2 is not set, so that `match_l2c` falls back to
//! `match_smt` (6.1 and 6.12). Invariant: a CPU is in each of its own masks, and no mask reaches across nodes.

use std::collections::BTreeMap;

use super::Finding;
use crate::cache::CacheSpec;
use crate::cpu_set::CpuSet;
use crate::cpuid::{DecodedCpu, DecodedTopology, Vendor};
use crate::guest::Position;
use crate::id::{NodeId, VcpuIndex};

/// For each CPU, the CPUs that share a thing with it.
pub(super) struct Masks {
    pub(super) smt: Vec<CpuSet<VcpuIndex>>,
    pub(super) l2: Vec<CpuSet<VcpuIndex>>,
    pub(super) llc: Vec<CpuSet<VcpuIndex>>,
}

/// A pair of CPUs that share a thing across nodes: CPU, its node, CPU, its node.
type Split = ((VcpuIndex, NodeId), (VcpuIndex, NodeId));

pub(super) fn masks(seen: &DecodedTopology, nodes: &[NodeId], findings: &mut Vec<Finding>) -> Masks {
    let first = seen.cpus.first().map(specs);
    let differ = (0..).map(VcpuIndex).zip(&seen.cpus).filter(|(_, cpu)| Some(specs(cpu)) != first);
    findings.extend(differ.map(|(cpu, _)| Finding::CachesDiffer { cpu }));

    let smt = same(seen, |position| Position { thread: 0, ..position });
    let packages =
        same(seen, |position| Position { package: position.package, die: 0, cluster: 0, core: 0, thread: 0 });
    let of_level = |level: u8, otherwise: &[CpuSet<VcpuIndex>]| -> Vec<CpuSet<VcpuIndex>> {
        let shared =
            |cpu: &DecodedCpu| Some(cpu.caches.iter().find(|cache| cache.spec.level == level)?.shared_by.clone());
        seen.cpus.iter().zip(otherwise).map(|(cpu, other)| shared(cpu).unwrap_or_else(|| other.clone())).collect()
    };
    let (l2, llc) = match seen.vendor {
        Vendor::Intel => (of_level(2, &smt), of_level(3, &of_level(2, &packages))),
        Vendor::Amd => (smt.clone(), of_level(3, &packages)),
    };
    let mut sane = |sets, fault: fn(Split) -> Finding| split(sets, nodes, fault, findings);
    Masks { smt: sane(smt, smt_fault), l2: sane(l2, l2_fault), llc: sane(llc, llc_fault) }
}

fn specs(cpu: &DecodedCpu) -> Vec<CacheSpec> {
    cpu.caches.iter().map(|cache| cache.spec).collect()
}

/// For each CPU, those whose position has the same `unit`.
pub(super) fn same(seen: &DecodedTopology, unit: impl Fn(Position) -> Position) -> Vec<CpuSet<VcpuIndex>> {
    let mut members: BTreeMap<Position, CpuSet<VcpuIndex>> = BTreeMap::new();
    for (cpu, seen) in (0..).map(VcpuIndex).zip(&seen.cpus) {
        members.entry(unit(seen.position)).or_default().insert(cpu);
    }
    seen.cpus.iter().map(|cpu| members.get(&unit(cpu.position)).cloned().unwrap_or_default()).collect()
}

/// `topology_sane`: the parts of each set on the CPU's own node; one finding for a set, as Linux warns once.
fn split(
    sets: Vec<CpuSet<VcpuIndex>>,
    nodes: &[NodeId],
    fault: fn(Split) -> Finding,
    findings: &mut Vec<Finding>,
) -> Vec<CpuSet<VcpuIndex>> {
    let node = |cpu: VcpuIndex| nodes.get(cpu.index()).copied().unwrap_or(NodeId(0));
    let mut sane = Vec::with_capacity(sets.len());
    for (cpu, set) in (0..).map(VcpuIndex).zip(sets) {
        let stranger = set.iter().find(|other| node(*other) != node(cpu));
        match stranger {
            None => sane.push(set),
            Some(other) => {
                if set.lowest() == Some(cpu) {
                    findings.push(fault(((cpu, node(cpu)), (other, node(other)))));
                }
                sane.push(set.iter().filter(|other| node(*other) == node(cpu)).collect());
            }
        }
    }
    sane
}

fn smt_fault(((first, first_node), (second, second_node)): Split) -> Finding {
    Finding::SmtAcrossNodes { first, second, first_node, second_node }
}

fn l2_fault(((first, first_node), (second, second_node)): Split) -> Finding {
    Finding::L2AcrossNodes { first, second, first_node, second_node }
}

fn llc_fault(((first, first_node), (second, second_node)): Split) -> Finding {
    Finding::LlcAcrossNodes { first, second, first_node, second_node }
}
