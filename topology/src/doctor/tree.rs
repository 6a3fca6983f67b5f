// SPDX-License-Identifier: Apache-2.0
//! PPTT against CPUID: the same CPUs, packages, cores and caches.
//!
//! Levels of caches are counted as drivers/acpi/pptt.c `acpi_find_cache_level` counts them: along the next levels of a
//! node's caches, then on at its parent. Two readings of who shares a thing agree when their groups map one to one.

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::numbered;
use super::{Evidence, Finding};
use crate::acpi::decode::{Pptt, PpttCache};
use crate::cache::CacheKind;
use crate::cpuid::DecodedCpu;
use crate::guest::Position;
use crate::id::VcpuIndex;

/// A CPU with its way up the tree, lowest node first.
struct Climb<'a> {
    cpu: VcpuIndex,
    seen: &'a DecodedCpu,
    path: Vec<u32>,
}

pub(super) fn check(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let Some(pptt) = &evidence.acpi.pptt else { return };
    check_leaves(evidence, pptt, findings);
    let climbs = climbs(evidence, pptt, findings);
    check_empty(pptt, &climbs, findings);
    let package =
        |climb: &Climb<'_>| climb.path.iter().copied().find(|at| pptt.nodes.get(at).is_some_and(|n| n.package));
    let packages = climbs.iter().map(|climb| (climb.cpu, package(climb), climb.seen.position.package));
    let pair = disagreement(packages);
    findings.extend(pair.map(|(first, second)| Finding::PpttPackage { first, second }));
    // A thread's core is its parent; a leaf that is no thread is a core.
    let core = |climb: &Climb<'_>| climb.path.iter().copied().find(|at| pptt.nodes.get(at).is_some_and(|n| !n.thread));
    let unit = |climb: &Climb<'_>| Position { thread: 0, ..climb.seen.position };
    let pair = disagreement(climbs.iter().map(|climb| (climb.cpu, core(climb), unit(climb))));
    findings.extend(pair.map(|(first, second)| Finding::PpttCore { first, second }));
    check_caches(pptt, &climbs, findings);
}

fn check_leaves(evidence: &Evidence<'_>, pptt: &Pptt, findings: &mut Vec<Finding>) {
    let known: BTreeSet<u32> = evidence.acpi.madt.cpus.iter().map(|cpu| cpu.uid).collect();
    let mut leaves = BTreeSet::new();
    for uid in pptt.nodes.values().filter(|node| node.leaf).filter_map(|node| node.uid) {
        if !leaves.insert(uid) {
            findings.push(Finding::PpttCpuTwice { uid });
        } else if !known.contains(&uid) {
            findings.push(Finding::PpttCpuUnknown { uid });
        }
    }
}

fn climbs<'a>(evidence: &Evidence<'a>, pptt: &Pptt, findings: &mut Vec<Finding>) -> Vec<Climb<'a>> {
    let uids: BTreeMap<_, u32> = evidence.acpi.madt.cpus.iter().map(|cpu| (cpu.apic_id, cpu.uid)).collect();
    let leaves: BTreeMap<u32, u32> = pptt
        .nodes
        .iter()
        .filter(|(_, node)| node.leaf)
        .filter_map(|(offset, node)| Some((node.uid?, *offset)))
        .collect();
    let mut climbs = Vec::new();
    for ((cpu, apic_id), seen) in numbered(evidence).zip(&evidence.seen.cpus) {
        // A CPU without a UID is missing from the MADT, which has its own finding.
        let Some(uid) = uids.get(&apic_id).copied() else { continue };
        match leaves.get(&uid) {
            Some(leaf) => climbs.push(Climb { cpu, seen, path: pptt.path_from(*leaf) }),
            None => findings.push(Finding::PpttCpuMissing { cpu, uid }),
        }
    }
    climbs
}

fn check_empty(pptt: &Pptt, climbs: &[Climb<'_>], findings: &mut Vec<Finding>) {
    let used: BTreeSet<u32> = climbs.iter().flat_map(|climb| climb.path.iter().copied()).collect();
    let empty = pptt.nodes.iter().filter(|(offset, node)| node.package && !used.contains(offset));
    findings.extend(empty.map(|(offset, _)| Finding::PpttEmptyPackage { offset: *offset }));
}

/// A CPU with what it belongs to in one reading and in the other.
type Membership<A, B> = (VcpuIndex, A, B);

/// The CPUs of a kind of cache: where the table has it, and the lowest CPU that CPUID has sharing it.
type Sharers = Vec<Membership<Option<u32>, Option<VcpuIndex>>>;

fn check_caches(pptt: &Pptt, climbs: &[Climb<'_>], findings: &mut Vec<Finding>) {
    let mut found: BTreeMap<(u8, CacheKind), Sharers> = BTreeMap::new();
    for climb in climbs {
        let in_tree = caches_above(pptt, &climb.path);
        for cache in &climb.seen.caches {
            let key = (cache.spec.level, cache.spec.kind);
            let alike = |(level, _, there): &&(u8, u32, &PpttCache)| {
                *level == key.0 && there.kind == Some(key.1) && sizes_agree(there, cache.spec.size_bytes)
            };
            let place = in_tree.iter().find(alike).map(|(_, offset, _)| *offset);
            if place.is_none() {
                findings.push(Finding::PpttCache { cpu: climb.cpu, cache: cache.spec.name() });
            }
            found.entry(key).or_default().push((climb.cpu, place, cache.shared_by.lowest()));
        }
    }
    for ((level, kind), groups) in found {
        if groups.iter().all(|(_, place, _)| place.is_some())
            && let Some((_, cpu)) = disagreement(groups.into_iter())
        {
            findings.push(Finding::PpttCache { cpu, cache: format!("L{level}{}", kind.suffix()) });
        }
    }
}

/// A size that does not fit the table's field is not stated and so does not disagree.
fn sizes_agree(cache: &PpttCache, size_bytes: u64) -> bool {
    cache.size_bytes.is_none_or(|stated| u64::from(stated) == size_bytes)
}

/// The caches above a CPU as (level, offset, cache).
fn caches_above<'a>(pptt: &'a Pptt, path: &[u32]) -> Vec<(u8, u32, &'a PpttCache)> {
    let mut caches = Vec::new();
    let mut below: u8 = 0;
    for node in path.iter().filter_map(|offset| pptt.nodes.get(offset)) {
        let mut deepest = below;
        for head in &node.caches {
            let mut level = below;
            let mut at = Some(*head);
            while let Some((offset, cache)) = at.and_then(|offset| Some((offset, pptt.caches.get(&offset)?))) {
                level = level.saturating_add(1);
                caches.push((level, offset, cache));
                at = cache.next;
            }
            deepest = deepest.max(level);
        }
        below = deepest;
    }
    caches
}

/// Two CPUs that one reading puts together and the other apart, if there are any.
fn disagreement<A: Ord + Copy, B: Ord + Copy>(
    members: impl Iterator<Item = Membership<A, B>>,
) -> Option<(VcpuIndex, VcpuIndex)> {
    let mut by_a: BTreeMap<A, (VcpuIndex, B)> = BTreeMap::new();
    let mut by_b: BTreeMap<B, (VcpuIndex, A)> = BTreeMap::new();
    for (cpu, a, b) in members {
        let (first, its_b) = *by_a.entry(a).or_insert((cpu, b));
        if its_b != b {
            return Some((first, cpu));
        }
        let (first, its_a) = *by_b.entry(b).or_insert((cpu, a));
        if its_a != a {
            return Some((first, cpu));
        }
    }
    None
}
