// SPDX-License-Identifier: Apache-2.0
//! The scheduler domains of each CPU, as the guest's kernel builds them.
//!
//! Levels from arch/x86/kernel/smpboot.c `build_sched_topology`: SMT, CLS (L2), MC (LLC) and PKG, which is the CPUs of
//! the *node* (`cpu_cpu_mask`) and is left out everywhere when any package has several nodes. Then
//! kernel/sched/topology.c: `sched_init_numa` adds NODE, the nodes at the shortest distance, and a NUMA level for each
//! further distance that occurs between nodes with CPUs; `build_sched_domains` stops at the first that spans all CPUs;
//! `cpu_attach_domain` removes a domain that spans no more than its child (`sd_parent_degenerate`: the flags it has
//! beyond the child's all need several groups) and at last the lowest if it is a single CPU (`sd_degenerate`). So the
//! lower of two equal levels gives the name. 6.1 does the same and calls PKG `DIE`. What is listed is what
//! `/sys/kernel/debug/sched/domains/cpuN/domainM/name` and the scheduler's `sched_domain` lines show.
//! Invariant: the domains of a CPU ascend, each a proper part of the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Finding;
use super::caches::Masks;
use crate::cpu_set::CpuSet;
use crate::cpuid::DecodedTopology;
use crate::id::{NodeId, VcpuIndex};

/// A level of the scheduler's topology, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// Threads of a core.
    Smt,
    /// Cores that share an L2 cache.
    Cls,
    /// Cores that share the last-level cache.
    Mc,
    /// All CPUs of a node, when no package has several. Linux 6.1: `DIE`.
    Pkg,
    /// All CPUs of a node.
    Node,
    /// CPUs of nodes up to some distance.
    Numa,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Smt => "SMT",
            Self::Cls => "CLS",
            Self::Mc => "MC",
            Self::Pkg => "PKG",
            Self::Node => "NODE",
            Self::Numa => "NUMA",
        })
    }
}

/// A scheduler domain of one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Its level, and so its name.
    pub level: Level,
    /// The longest distance within it; on NODE and NUMA levels only.
    pub distance: Option<u8>,
    /// The CPUs that it balances among.
    pub span: CpuSet<VcpuIndex>,
}

/// Where CPUs are and how far apart: the node of each CPU, and the distance from one to another.
type Places<'a> = (&'a [NodeId], &'a dyn Fn(NodeId, NodeId) -> u8);

/// The domains of every CPU, in CPU order, lowest first.
pub(super) fn build(
    seen: &DecodedTopology,
    masks: &Masks,
    places: Places<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<Vec<Domain>> {
    let numa = Numa::new(places);
    let with_packages = packages_across_nodes(seen, places.0).is_empty();
    let cpus = (0..).map(VcpuIndex).zip(places.0);
    cpus.map(|(cpu, node)| {
        let of = |sets: &[CpuSet<VcpuIndex>]| sets.get(cpu.index()).cloned().unwrap_or_default();
        let mut levels = vec![
            (Level::Smt, None, of(&masks.smt)),
            (Level::Cls, None, of(&masks.l2)),
            (Level::Mc, None, of(&masks.llc)),
        ];
        if with_packages {
            levels.push((Level::Pkg, None, numa.cpus_of(*node)));
        }
        levels.extend(numa.levels(*node));
        let all = places.0.len();
        without_degenerate(nested(cpu, all, levels, findings))
    })
    .collect()
}

/// Packages whose CPUs are on several nodes (`x86_has_numa_in_package`).
pub(super) fn packages_across_nodes(seen: &DecodedTopology, nodes: &[NodeId]) -> BTreeSet<u32> {
    let mut first: BTreeMap<u32, NodeId> = BTreeMap::new();
    let placed = seen.cpus.iter().map(|cpu| cpu.position.package).zip(nodes);
    placed
        .filter(|(package, node)| first.entry(*package).or_insert(**node) != *node)
        .map(|(package, _)| package)
        .collect()
}

/// `build_sched_domain`: a level that does not hold its child is widened, and complained of; the first that spans all
/// CPUs is the last.
fn nested(
    cpu: VcpuIndex,
    all: usize,
    levels: Vec<(Level, Option<u8>, CpuSet<VcpuIndex>)>,
    findings: &mut Vec<Finding>,
) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for (level, distance, mut span) in levels {
        if let Some(child) = domains.last().filter(|child| !child.span.is_subset(&span)) {
            let (child_name, parent) = (child.level.to_string(), level.to_string());
            findings.push(Finding::DomainsNotNested { cpu, child: child_name, parent });
            span = span.union(&child.span);
        }
        let complete = span.len() == all;
        domains.push(Domain { level, distance, span });
        if complete {
            break;
        }
    }
    domains
}

/// `cpu_attach_domain`.
fn without_degenerate(domains: Vec<Domain>) -> Vec<Domain> {
    let mut kept: Vec<Domain> = Vec::new();
    for domain in domains {
        let contributes = kept.last().is_none_or(|child| domain.span.len() > 1 && child.span != domain.span);
        if contributes {
            kept.push(domain);
        }
    }
    if kept.first().is_some_and(|lowest| lowest.span.len() == 1) {
        kept.remove(0);
    }
    kept
}

/// What `sched_init_numa` prepares: for each node with CPUs, the CPUs within each distance that occurs.
struct Numa {
    distances: Vec<u8>,
    own: BTreeMap<NodeId, CpuSet<VcpuIndex>>,
    within: BTreeMap<NodeId, Vec<CpuSet<VcpuIndex>>>,
}

impl Numa {
    fn new((nodes, distance): Places<'_>) -> Self {
        let mut own: BTreeMap<NodeId, CpuSet<VcpuIndex>> = BTreeMap::new();
        for (cpu, node) in (0..).map(VcpuIndex).zip(nodes) {
            own.entry(*node).or_default().insert(cpu);
        }
        let occurring = own.keys().flat_map(|from| own.keys().map(|to| distance(*from, *to)));
        let distances: Vec<u8> = occurring.collect::<BTreeSet<_>>().into_iter().collect();
        let reach = |from: NodeId, limit: u8| {
            let near = own.iter().filter(|(to, _)| distance(from, **to) <= limit);
            near.flat_map(|(_, cpus)| cpus.iter()).collect::<CpuSet<_>>()
        };
        let within =
            own.keys().map(|node| (*node, distances.iter().map(|limit| reach(*node, *limit)).collect())).collect();
        Self { distances, own, within }
    }

    fn cpus_of(&self, node: NodeId) -> CpuSet<VcpuIndex> {
        self.own.get(&node).cloned().unwrap_or_default()
    }

    fn levels(&self, node: NodeId) -> impl Iterator<Item = (Level, Option<u8>, CpuSet<VcpuIndex>)> {
        let spans = self.within.get(&node).map_or(&[][..], Vec::as_slice);
        let names = std::iter::once(Level::Node).chain(std::iter::repeat(Level::Numa));
        names.zip(&self.distances).zip(spans).map(|((level, limit), span)| (level, Some(*limit), span.clone()))
    }
}
