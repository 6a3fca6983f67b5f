// SPDX-License-Identifier: Apache-2.0
//! From captured text to the tree: which CPUs exist, how they group on every level, which may be used.
//!
//! Invariant: levels nest (thread in core in cluster in LLC in node) before a topology leaves this file.

use super::partition::{Claims, Partition};
use super::text::{parse_list, parse_number};
use super::{Capture, Cpu, Degradation, Group, HostError, HostTopology, Level, MAX_CPUS, memory, path, rank};
use crate::cpu_set::CpuSet;
use crate::id::HostCpu;

const CPU: &str = "devices/system/cpu";
/// Caches of one CPU that are looked at; Linux shows `index0` to `index4` on today's machines.
const MAX_CACHES: usize = 16;

/// The levels, each a partition of the CPUs.
struct Levels {
    core: Partition,
    cluster: Partition,
    llc: Partition,
    die: Partition,
    package: Partition,
}

pub(super) fn build(capture: &Capture) -> Result<HostTopology, HostError> {
    let mut degradations = Vec::new();
    let ids = online(capture, &mut degradations)?;
    let (nodes, node_of) = memory::nodes(capture, &ids, &mut degradations)?;
    let distances = memory::distances(capture, &nodes, &mut degradations)?;
    let levels = levels(capture, &ids, &node_of, &mut degradations)?;
    let (rank_source, ranks) = rank::ranks(capture, &ids, &mut degradations)?;
    let isolated = list(capture, &format!("{CPU}/isolated"))?.unwrap_or_default();
    let usable = usable(capture, &ids, &isolated, &mut degradations)?;
    degradations.sort();
    degradations.dedup();
    let groups = |inner: &Partition, parent: &[usize]| -> Vec<Group> {
        let group = |cpus: &Vec<usize>| Group { cpus: cpus.iter().map(|&c| ids[c]).collect(), parent: parent[cpus[0]] };
        inner.groups.iter().map(group).collect()
    };
    Ok(HostTopology {
        cores: groups(&levels.core, &levels.cluster.of),
        clusters: groups(&levels.cluster, &levels.llc.of),
        llcs: groups(&levels.llc, &node_of),
        cpus: cpus(&ids, &levels, &node_of, &ranks),
        nodes,
        distances,
        usable,
        isolated,
        rank_source,
        degradations,
    })
}

fn cpus(ids: &[HostCpu], levels: &Levels, node_of: &[usize], ranks: &[u32]) -> Vec<Cpu> {
    let mut threads = vec![0; levels.core.groups.len()];
    let cpu = |(index, id): (usize, &HostCpu)| {
        let core = levels.core.of[index];
        let thread = threads[core];
        threads[core] += 1;
        Cpu {
            id: *id,
            thread,
            core,
            cluster: levels.cluster.of[index],
            llc: levels.llc.of[index],
            die: levels.die.of[index],
            package: levels.package.of[index],
            node: node_of[index],
            rank: ranks[index],
        }
    };
    ids.iter().enumerate().map(cpu).collect()
}

/// Online CPUs, ascending. Without the list: CPUs with a topology directory, or else the affinity.
fn online(capture: &Capture, degradations: &mut Vec<Degradation>) -> Result<Vec<HostCpu>, HostError> {
    let listed = list(capture, &format!("{CPU}/online"))?;
    let online = match listed.filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => cpus,
        None => {
            degradations.push(Degradation::NoOnlineList);
            let named: CpuSet<_> = capture.numbers(&format!("{CPU}/cpu")).into_iter().map(HostCpu).collect();
            if named.is_empty() { list(capture, path::AFFINITY)?.unwrap_or_default() } else { named }
        }
    };
    match online.highest() {
        None => Err(HostError::NoCpus),
        Some(cpu) if cpu.0 >= MAX_CPUS => Err(HostError::CpuBeyondLimit { cpu, limit: MAX_CPUS }),
        Some(_) => Ok(online.iter().collect()),
    }
}

fn usable(
    capture: &Capture,
    ids: &[HostCpu],
    isolated: &CpuSet<HostCpu>,
    degradations: &mut Vec<Degradation>,
) -> Result<CpuSet<HostCpu>, HostError> {
    let online: CpuSet<HostCpu> = ids.iter().copied().collect();
    let affinity = list(capture, path::AFFINITY)?;
    let cpuset = list(capture, path::CPUSET)?.filter(|cpus| !cpus.is_empty());
    if affinity.is_none() {
        degradations.push(Degradation::NoAffinity);
    }
    let mut allowed = online.clone();
    for limit in affinity.iter().chain(&cpuset) {
        allowed = allowed.intersection(limit);
    }
    if allowed.is_empty() {
        let name = |limit: Option<CpuSet<HostCpu>>| limit.map_or_else(|| "any".to_owned(), |cpus| cpus.to_string());
        let (affinity, cpuset) = (name(affinity), name(cpuset));
        return Err(HostError::NothingAllowed { online: online.to_string(), affinity, cpuset });
    }
    let housekeeping = allowed.difference(isolated);
    if housekeeping.is_empty() {
        degradations.push(Degradation::OnlyIsolated);
        return Ok(allowed);
    }
    Ok(housekeeping)
}

fn list(capture: &Capture, path: &str) -> Result<Option<CpuSet<HostCpu>>, HostError> {
    capture.get(path).map(|text| parse_list(path, text)).transpose()
}

fn levels(
    capture: &Capture,
    ids: &[HostCpu],
    node_of: &[usize],
    degradations: &mut Vec<Degradation>,
) -> Result<Levels, HostError> {
    let mut read = |level, files: &[&str], fallback: &Partition| {
        let texts = ids.iter().map(|cpu| topology_text(capture, *cpu, files)).collect();
        grouped(&Claims { level, ids, texts }, fallback, degradations)
    };
    let node = Partition::by_key(node_of.iter());
    let alone = Partition::by_key(0..ids.len());
    let together = Partition::by_key(ids.iter().map(|_| ()));
    let package = read(Level::Package, &["package_cpus_list", "core_siblings_list"], &together)?;
    let die = read(Level::Die, &["die_cpus_list"], &package)?;
    let core = read(Level::Core, &["core_cpus_list", "thread_siblings_list"], &alone)?;
    let (l2, last) = caches(capture, ids)?;
    let llc = grouped(&Claims { level: Level::Llc, ids, texts: last }, &die, degradations)?;
    let cluster = cluster(capture, ids, l2, &core)?;
    core.must_nest((Level::Core, Level::Die), &die, ids)?;
    core.must_nest((Level::Core, Level::Node), &node, ids)?;
    core.must_nest((Level::Core, Level::Llc), &llc, ids)?;
    die.must_nest((Level::Die, Level::Package), &package, ids)?;
    llc.must_nest((Level::Llc, Level::Package), &package, ids)?;
    if llc.torn_by(&node).is_some() {
        degradations.push(Degradation::LlcSplitByNode);
    }
    let llc = llc.refine(&node);
    let cluster = fit_clusters(cluster, &core, &llc, ids, degradations)?;
    Ok(Levels { core, cluster, llc, die, package })
}

fn grouped(
    claims: &Claims<'_>,
    fallback: &Partition,
    degradations: &mut Vec<Degradation>,
) -> Result<Partition, HostError> {
    if claims.missing() > 0 {
        degradations.push(Degradation::LevelMissing { level: claims.level, cpus: claims.missing() });
    }
    claims.partition(fallback)
}

/// The first of the files that was captured, with its path.
fn topology_text<'a>(capture: &'a Capture, cpu: HostCpu, files: &[&str]) -> Option<(String, &'a str)> {
    files.iter().find_map(|file| {
        let path = format!("{CPU}/cpu{cpu}/topology/{file}");
        capture.get(&path).map(|text| (path, text))
    })
}

/// Text per CPU: which CPUs share the cache.
type CacheTexts<'a> = Vec<Option<(String, &'a str)>>;

/// Sharers of the L2 and of the last level of data or unified cache.
fn caches<'a>(capture: &'a Capture, ids: &[HostCpu]) -> Result<(CacheTexts<'a>, CacheTexts<'a>), HostError> {
    let (mut l2, mut last) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
    for cpu in ids {
        let (mut found_l2, mut found_last) = (None, None);
        let mut highest = 0;
        for index in 0..MAX_CACHES {
            let directory = format!("{CPU}/cpu{cpu}/cache/index{index}");
            let path = format!("{directory}/level");
            let Some(text) = capture.get(&path) else { continue };
            let level: u8 = parse_number(&path, text, "a cache level")?;
            let shared = format!("{directory}/shared_cpu_list");
            let (Some(text), true) = (capture.get(&shared), is_data(capture, &directory)) else { continue };
            if level == 2 {
                found_l2 = Some((shared.clone(), text));
            }
            // Level 1 is never the last level of a machine that says all: only its first caches were captured.
            if level > highest && level > 1 {
                highest = level;
                found_last = Some((shared, text));
            }
        }
        l2.push(found_l2);
        last.push(found_last);
    }
    Ok((l2, last))
}

fn is_data(capture: &Capture, directory: &str) -> bool {
    capture.get(&format!("{directory}/type")) != Some("Instruction")
}

/// Clusters as `cluster_cpus_list` has them, or else as the L2 is shared, or else one per core.
///
/// A machine without clusters lists every CPU alone, even if it has SMT: that says "none".
fn cluster(capture: &Capture, ids: &[HostCpu], l2: CacheTexts<'_>, core: &Partition) -> Result<Partition, HostError> {
    let by_l2 = Claims { level: Level::Cluster, ids, texts: l2 }.partition(core)?;
    let texts = ids.iter().map(|cpu| topology_text(capture, *cpu, &["cluster_cpus_list"])).collect();
    let listed = Claims { level: Level::Cluster, ids, texts }.partition(&by_l2)?;
    let alone = listed.groups.len() == ids.len();
    Ok(if alone { by_l2 } else { listed })
}

/// Makes clusters nest between cores and caches.
///
/// Clusters that are larger than the cache say nothing (the kernel ignores them too); clusters that cut across one are
/// a contradiction.
fn fit_clusters(
    cluster: Partition,
    core: &Partition,
    llc: &Partition,
    ids: &[HostCpu],
    degradations: &mut Vec<Degradation>,
) -> Result<Partition, HostError> {
    if cluster.groups.len() == ids.len() {
        return Ok(core.clone());
    }
    core.must_nest((Level::Core, Level::Cluster), &cluster, ids)?;
    if cluster.torn_by(llc).is_none() {
        return Ok(cluster);
    }
    llc.must_nest((Level::Llc, Level::Cluster), &cluster, ids)?;
    degradations.push(Degradation::ClusterIgnored);
    Ok(core.clone())
}
