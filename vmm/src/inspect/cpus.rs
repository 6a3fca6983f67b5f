// SPDX-License-Identifier: Apache-2.0
//! The host's CPUs and nodes in numbers: a summary for people, not what placement decides on. Judged on text.

use std::collections::BTreeSet;

use serde::Serialize;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode};

use super::ReadText;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";
/// Cache indices a CPU has at most; Linux numbers them from 0 without holes.
const MAX_CACHE_INDEX: u32 = 16;

/// The host's CPUs and nodes; whatever sysfs does not say is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostCpus {
    /// Model name of the first CPU.
    pub model: Option<String>,
    /// CPUs that are online.
    pub online: Option<CpuSet<HostCpu>>,
    /// Packages.
    pub packages: Option<usize>,
    /// Cores, over all packages.
    pub cores: Option<usize>,
    /// Last-level caches.
    pub last_level_caches: Option<usize>,
    /// NUMA nodes, in the order of their numbers; empty if the kernel has no NUMA.
    pub nodes: Vec<HostNodeSummary>,
}

/// One node of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostNodeSummary {
    /// Its number.
    pub node: HostNode,
    /// Its CPUs.
    pub cpus: Option<CpuSet<HostCpu>>,
    /// Its memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Its distance to each node, in the order of the list.
    pub distances: Vec<u32>,
}

impl HostCpus {
    pub(super) fn from_text(read: ReadText<'_>) -> Self {
        let set = |path: &str| read(path).ok().and_then(|text| text.parse::<CpuSet<HostCpu>>().ok());
        let online = set(&format!("{CPU}/online"));
        let each = |what: &dyn Fn(HostCpu) -> Option<String>| {
            let found: Option<BTreeSet<String>> = online.as_ref()?.iter().map(what).collect();
            found.map(|distinct| distinct.len())
        };
        let topology = |cpu: HostCpu, file: &str| read(&format!("{CPU}/cpu{cpu}/topology/{file}")).ok();
        Self {
            model: read("/proc/cpuinfo").ok().and_then(|text| model_name(&text)),
            packages: each(&|cpu| topology(cpu, "physical_package_id")),
            cores: each(&|cpu| topology(cpu, "core_cpus_list").or_else(|| topology(cpu, "thread_siblings_list"))),
            last_level_caches: each(&|cpu| last_level_cache(read, cpu)),
            nodes: nodes(read),
            online,
        }
    }
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Who shares the highest cache of a CPU, as sysfs lists it.
fn last_level_cache(read: ReadText<'_>, cpu: HostCpu) -> Option<String> {
    let cache = |index| {
        let path = format!("{CPU}/cpu{cpu}/cache/index{index}");
        let level = read(&format!("{path}/level")).ok()?.parse::<u32>().ok()?;
        Some((level, read(&format!("{path}/shared_cpu_list")).ok()?))
    };
    (0..MAX_CACHE_INDEX).map_while(cache).max_by_key(|(level, _)| *level).map(|(_, shared)| shared)
}

fn nodes(read: ReadText<'_>) -> Vec<HostNodeSummary> {
    // A list of nodes has the format of a list of CPUs.
    let online: CpuSet<HostNode> =
        read(&format!("{NODE}/online")).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
    let node = |node: HostNode| {
        let file = |name: &str| read(&format!("{NODE}/node{node}/{name}")).ok();
        HostNodeSummary {
            node,
            cpus: file("cpulist").and_then(|text| text.parse().ok()),
            memory_bytes: file("meminfo").and_then(|text| memory_total(&text)),
            distances: file("distance")
                .map(|text| text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect())
                .unwrap_or_default(),
        }
    };
    online.iter().map(node).collect()
}

/// From `Node 0 MemTotal:  16384 kB`.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains("MemTotal:"))?;
    let kib: u64 = line.split_once("MemTotal:")?.1.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::fixture;

    #[test]
    fn two_threads_of_one_core_on_one_node() {
        let files = [
            ("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            ("/sys/devices/system/cpu/online", "0-1"),
            ("/sys/devices/system/cpu/cpu0/topology/physical_package_id", "0"),
            ("/sys/devices/system/cpu/cpu1/topology/physical_package_id", "0"),
            ("/sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1"),
            ("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1"),
            ("/sys/devices/system/cpu/cpu0/cache/index0/level", "1"),
            ("/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "0"),
            ("/sys/devices/system/cpu/cpu0/cache/index1/level", "3"),
            ("/sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list", "0-1"),
            ("/sys/devices/system/node/online", "0,2"),
            ("/sys/devices/system/node/node0/cpulist", "0-1"),
            ("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       16384 kB\nNode 0 MemFree: 1 kB"),
            ("/sys/devices/system/node/node0/distance", "10 21"),
            ("/sys/devices/system/node/node2/cpulist", ""),
        ];
        let host = HostCpus::from_text(&fixture(&files));
        assert_eq!(host.model.as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!((host.packages, host.cores), (Some(1), Some(1)));
        assert_eq!(host.last_level_caches, None, "CPU 1 does not say");
        assert_eq!(host.nodes[0].memory_bytes, Some(16 << 20));
        assert_eq!(host.nodes[0].distances, [10, 21]);
        assert_eq!(host.nodes[1].node, HostNode(2));
        assert_eq!((host.nodes[1].cpus.as_ref().map(CpuSet::len), host.nodes[1].memory_bytes), (Some(0), None));
    }

    #[test]
    fn a_host_that_says_nothing_is_unknown_and_no_failure() {
        assert_eq!(HostCpus::from_text(&fixture(&[])), HostCpus::default());
        let garbage = |_: &str| Ok("\u{fffd} -1 99999999999999999999 kB MemTotal:".to_owned());
        assert_eq!(HostCpus::from_text(&garbage).nodes, []);
    }
}
