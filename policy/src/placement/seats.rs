// SPDX-License-Identifier: Apache-2.0
//! In which order vacant CPUs are taken by the vCPUs of one unit (a guest cluster, or a whole guest node).
//!
//! The order is a list. `Auto` takes the unit's CPUs from one cluster or one cache if the unit fits there on whole
//! cores; else from the front of the list.
//!
//! Invariant: the list is a permutation of the vacant CPUs it was made from.

use std::cmp::Reverse;

use super::floor::Floor;
use super::{Mode, Rule};

/// A unit takes a cluster only if that costs at most one part in this many of the rank it would find in the cache: what
/// a cluster is worth was measured as 7 to 18 % (seed cluster-scan, 1 to 32 threads).
const CLUSTER_RANK_SLACK: u64 = 8;

/// What a unit needs.
pub(super) struct Need<'a> {
    /// vCPUs.
    pub(super) count: usize,
    /// The guest has clusters, so that the host's matter.
    pub(super) clustered: bool,
    /// The guest has threads, and the host too.
    pub(super) siblings: bool,
    pub(super) mode: &'a Mode,
}

/// Vacant CPUs in the order in which they are taken.
pub(super) struct Seats {
    /// CPUs, best first.
    pub(super) list: Vec<usize>,
    /// For every CPU of the list: busy threads of its core before it.
    pub(super) sharers: Vec<u32>,
    /// The threads of a guest core go on the threads of a host core.
    pub(super) siblings: bool,
}

/// The CPUs a unit gets, and where they lie together.
pub(super) struct Choice {
    /// CPUs, in the order of the unit's vCPUs.
    pub(super) cpus: Vec<usize>,
    /// The level on which they are together, if one was looked for and found.
    pub(super) region: Option<(Rule, usize)>,
}

impl Seats {
    /// Orders `vacant`, which is ascending.
    pub(super) fn new(floor: &Floor<'_>, vacant: &[usize], need: &Need<'_>) -> Self {
        let sharers = floor.sharers(vacant);
        let mut seats: Vec<(usize, u32)> = vacant.iter().copied().zip(sharers).collect();
        if *need.mode == Mode::Spread {
            let ordinals = ordinals(floor, vacant);
            seats.sort_by_key(|&(cpu, sharers)| (sharers, Reverse(floor.rank(cpu)), ordinal_of(&ordinals, cpu), cpu));
        } else {
            let best = best_caches(floor, &seats);
            let whole = whole_cores(floor, &seats);
            seats.sort_by_key(|&(cpu, sharers)| {
                let at = floor.host.cpus()[cpu];
                let (by_cluster, llc) = if floor.rules.cluster { (at.cluster, best[at.llc]) } else { (0, 0) };
                let together = *need.mode == Mode::Pack || need.siblings;
                let (shared, core) = if together { (whole[at.core], at.core) } else { (sharers, 0) };
                (shared, llc, Reverse(floor.rank(cpu)), by_cluster, core, cpu)
            });
        }
        let (list, sharers) = seats.into_iter().unzip();
        Self { list, sharers, siblings: need.siblings }
    }

    /// Takes the unit's CPUs.
    pub(super) fn choose(&self, floor: &Floor<'_>, need: &Need<'_>) -> Choice {
        if *need.mode == Mode::Auto && floor.rules.cluster {
            let cpus = floor.host.cpus();
            let llc = self.best_region(floor, need, |cpu| cpus[cpu].llc);
            let cluster = if need.clustered && floor.host.has_clusters() {
                self.best_region(floor, need, |cpu| cpus[cpu].cluster)
            } else {
                None
            };
            let wanted = llc.as_ref().map_or(0, |llc| llc.rank);
            let near = cluster.filter(|found| found.rank * CLUSTER_RANK_SLACK >= wanted * (CLUSTER_RANK_SLACK - 1));
            if let Some(found) = near {
                return Choice { cpus: found.cpus, region: Some((Rule::Cluster, found.region)) };
            }
            if let Some(found) = llc {
                return Choice { cpus: found.cpus, region: Some((Rule::Llc, found.region)) };
            }
        }
        Choice { cpus: self.list[..need.count.min(self.list.len())].to_vec(), region: None }
    }

    /// The region that holds the whole unit on whole cores: highest ranks, then least left over, then lowest number.
    fn best_region(&self, floor: &Floor<'_>, need: &Need<'_>, region_of: impl Fn(usize) -> usize) -> Option<Found> {
        let mut regions: std::collections::BTreeMap<usize, Found> = std::collections::BTreeMap::new();
        for (&cpu, &sharers) in self.list.iter().zip(&self.sharers) {
            let region = region_of(cpu);
            let found = regions.entry(region).or_insert_with(|| Found { region, rank: 0, left: 0, cpus: Vec::new() });
            if found.cpus.len() < need.count && (sharers == 0 || need.siblings) {
                found.rank += u64::from(floor.rank(cpu));
                found.cpus.push(cpu);
            } else {
                found.left += 1;
            }
        }
        let whole = regions.into_values().filter(|found| found.cpus.len() == need.count);
        whole.min_by_key(|found| (Reverse(found.rank), found.left, found.region))
    }
}

struct Found {
    region: usize,
    rank: u64,
    left: usize,
    cpus: Vec<usize>,
}

/// For every cache, its place in the order of preference: highest total rank of whole vacant cores, then lowest number.
fn best_caches(floor: &Floor<'_>, seats: &[(usize, u32)]) -> Vec<usize> {
    let mut worth = vec![0u64; floor.host.llcs().len()];
    for &(cpu, _) in seats.iter().filter(|(_, sharers)| *sharers == 0) {
        worth[floor.host.cpus()[cpu].llc] += u64::from(floor.rank(cpu));
    }
    let mut order: Vec<usize> = (0..worth.len()).collect();
    order.sort_by_key(|&llc| Reverse(worth[llc]));
    let mut place = vec![0; worth.len()];
    for (position, llc) in order.into_iter().enumerate() {
        place[llc] = position;
    }
    place
}

/// For every core, whether it is busy in part before the first vacant thread is taken.
fn whole_cores(floor: &Floor<'_>, seats: &[(usize, u32)]) -> Vec<u32> {
    let mut least = vec![u32::MAX; floor.host.cores().len()];
    for &(cpu, sharers) in seats {
        let core = floor.host.cpus()[cpu].core;
        least[core] = least[core].min(sharers);
    }
    least
}

/// For `Spread`: how many vacant groups of the same level come before the CPU's own, from the innermost level out.
fn ordinals(floor: &Floor<'_>, vacant: &[usize]) -> Vec<(usize, [usize; 4])> {
    let cpus = floor.host.cpus();
    let mut seen: [Vec<(usize, usize)>; 3] = [const { Vec::new() }; 3];
    let mut counts: [std::collections::BTreeMap<usize, usize>; 3] = Default::default();
    let mut result = Vec::with_capacity(vacant.len());
    for &cpu in vacant {
        let at = cpus[cpu];
        let chain = [(at.core, at.cluster), (at.cluster, at.llc), (at.llc, at.node)];
        let mut ordinal = [0, 0, 0, at.node];
        for (level, (inner, outer)) in chain.into_iter().enumerate() {
            ordinal[level] = match seen[level].binary_search_by_key(&inner, |(group, _)| *group) {
                Ok(place) => seen[level][place].1,
                Err(place) => {
                    let next = counts[level].entry(outer).or_insert(0);
                    seen[level].insert(place, (inner, *next));
                    *next += 1;
                    *next - 1
                }
            };
        }
        result.push((cpu, ordinal));
    }
    result
}

fn ordinal_of(ordinals: &[(usize, [usize; 4])], cpu: usize) -> [usize; 4] {
    ordinals.binary_search_by_key(&cpu, |(cpu, _)| *cpu).map_or([0; 4], |place| ordinals[place].1)
}
