// SPDX-License-Identifier: Apache-2.0
//! A machine as text for people: a tree as `lstopo` draws it, and aligned tables.
//!
//! Reads a [`TopologyReport`] and nothing else, so the text and the JSON cannot disagree. Levels of which there is one
//! only are left out of the tree.

use std::fmt::Write;

use crate::cache::CacheScope;
use crate::report::{NodeReport, TopologyReport, VcpuReport};

/// A line of the tree and what hangs below it.
struct Branch {
    label: String,
    children: Vec<Branch>,
}

/// Levels of the tree, from the package down.
#[derive(Clone, Copy)]
enum Level {
    Package,
    Die,
    Cluster,
    Core,
    Thread,
}

/// The machine as a tree: nodes, packages, dies, clusters, cores, threads, with caches where they are shared.
///
/// A package that spans nodes stands under each of them with its dies there.
#[must_use]
pub fn tree(report: &TopologyReport) -> String {
    let children = report.nodes.iter().map(|node| node_branch(report, node)).collect();
    let (cpus, memory) = (counted(report.cpus, "CPU"), size(report.memory_bytes));
    let mut text = String::new();
    draw(&Branch { label: format!("Machine ({cpus}, {memory})"), children }, "", "", &mut text);
    text
}

fn node_branch(report: &TopologyReport, node: &NodeReport) -> Branch {
    let cpus: Vec<&VcpuReport> = report.vcpus.iter().filter(|cpu| cpu.node == node.node).collect();
    let list = if cpus.is_empty() { "no CPUs".to_owned() } else { format!("CPUs {}", node.cpus) };
    Branch {
        label: format!("NUMA node {} ({list}, {})", node.node, size(node.memory_bytes)),
        children: branches(report, &levels(report), &cpus),
    }
}

/// The levels that are worth a line.
fn levels(report: &TopologyReport) -> Vec<Level> {
    let shape = &report.shape;
    let mut levels = vec![Level::Package];
    levels.extend((shape.dies > 1).then_some(Level::Die));
    levels.extend((shape.clusters > 1).then_some(Level::Cluster));
    levels.push(Level::Core);
    levels.extend((shape.threads > 1).then_some(Level::Thread));
    levels
}

fn branches(report: &TopologyReport, levels: &[Level], cpus: &[&VcpuReport]) -> Vec<Branch> {
    let Some((&level, below)) = levels.split_first() else {
        return Vec::new();
    };
    // CPUs of a package need not be neighbours, but a stable sort by the level keeps them in order within it.
    let mut sorted = cpus.to_vec();
    sorted.sort_by_key(|cpu| number(level, cpu));
    sorted
        .chunk_by(|a, b| number(level, a) == number(level, b))
        .map(|unit| Branch { label: label(report, level, unit[0]), children: branches(report, below, unit) })
        .collect()
}

const fn number(level: Level, cpu: &VcpuReport) -> u32 {
    match level {
        Level::Package => cpu.package,
        Level::Die => cpu.die,
        Level::Cluster => cpu.cluster,
        Level::Core => cpu.core,
        Level::Thread => cpu.thread,
    }
}

fn label(report: &TopologyReport, level: Level, cpu: &VcpuReport) -> String {
    let shape = &report.shape;
    let here = format!("CPU {} (APIC id {})", cpu.index, cpu.apic_id);
    let name = match level {
        Level::Package => "Package",
        Level::Die => "Die",
        Level::Cluster => "Cluster",
        Level::Core => "Core",
        Level::Thread => return here,
    };
    let mut label = format!("{name} {}", number(level, cpu));
    let shares = |scope| match scope {
        CacheScope::Die if shape.dies == 1 => matches!(level, Level::Package),
        CacheScope::Die => matches!(level, Level::Die),
        CacheScope::Cluster => matches!(level, Level::Cluster),
        CacheScope::Core => matches!(level, Level::Core),
    };
    for cache in report.caches.iter().rev().filter(|cache| shares(cache.shared_by)) {
        let _ = write!(label, ", {} {}", cache.name, size(cache.size_bytes));
    }
    if matches!(level, Level::Core) && shape.threads == 1 {
        let _ = write!(label, ": {here}");
    }
    label
}

fn draw(branch: &Branch, first: &str, rest: &str, text: &mut String) {
    let _ = writeln!(text, "{first}{}", branch.label);
    let Some((last, others)) = branch.children.split_last() else {
        return;
    };
    for child in others {
        draw(child, &format!("{rest}├─ "), &format!("{rest}│  "), text);
    }
    draw(last, &format!("{rest}└─ "), &format!("{rest}   "), text);
}

/// The machine as three tables: CPUs, nodes with distances, caches.
#[must_use]
pub fn table(report: &TopologyReport) -> String {
    [cpu_table(report), node_table(report), cache_table(report)].join("\n")
}

/// One line a CPU.
#[must_use]
pub fn cpu_table(report: &TopologyReport) -> String {
    let heading = ["CPU", "APIC id", "package", "die", "cluster", "core", "thread", "node"].map(str::to_owned);
    let row = |cpu: &VcpuReport| {
        let numbers = [cpu.package, cpu.die, cpu.cluster, cpu.core, cpu.thread];
        let ids = [cpu.index.to_string(), cpu.apic_id.to_string()];
        ids.into_iter().chain(numbers.map(|number| number.to_string())).chain([cpu.node.to_string()]).collect()
    };
    aligned(heading.to_vec(), report.vcpus.iter().map(row).collect())
}

/// One line a node, with its row of the distance matrix.
#[must_use]
pub fn node_table(report: &TopologyReport) -> String {
    let mut heading = ["node", "CPUs", "memory", "distance to:"].map(str::to_owned).to_vec();
    heading.extend(report.nodes.iter().map(|node| node.node.to_string()));
    let row = |(node, distances): (&NodeReport, &Vec<u8>)| {
        let cpus = if node.cpus.is_empty() { "-".to_owned() } else { node.cpus.to_string() };
        let mut cells = vec![node.node.to_string(), cpus, size(node.memory_bytes), String::new()];
        cells.extend(distances.iter().map(ToString::to_string));
        cells
    };
    aligned(heading, report.nodes.iter().zip(&report.distances).map(row).collect())
}

/// One line a cache.
#[must_use]
pub fn cache_table(report: &TopologyReport) -> String {
    let heading = ["cache", "size", "ways", "line", "shared by"].map(str::to_owned).to_vec();
    let rows = report.caches.iter().map(|cache| {
        let shared_by = match cache.shared_by {
            CacheScope::Core => "core",
            CacheScope::Cluster => "cluster",
            CacheScope::Die => "die",
        };
        let (ways, line) = (cache.ways.to_string(), cache.line_bytes.to_string());
        vec![cache.name.clone(), size(cache.size_bytes), ways, line, shared_by.to_owned()]
    });
    aligned(heading, rows.collect())
}

/// Columns as wide as their widest cell, right-aligned, two blanks apart.
fn aligned(heading: Vec<String>, rows: Vec<Vec<String>>) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  "));
    }
    text
}

/// A size in the largest unit that states it in whole numbers.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

fn counted(count: u32, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{GuestTopology, NodeRequest, ShapeRequest, TopologyRequest};
    use crate::memory_map::{AddressSpace, MemoryMap};

    fn report(request: &TopologyRequest) -> TopologyReport {
        let machine = GuestTopology::new(request).unwrap();
        let space = AddressSpace { gap_start: 3 << 30, gap_end: 4 << 30, width_bits: 46 };
        TopologyReport::new(&machine, &MemoryMap::new(&machine, &space).unwrap())
    }

    fn shaped(cpus: u32, nodes: u32, counts: [u32; 5]) -> TopologyReport {
        let [sockets, dies, clusters, cores, threads] = counts.map(Some);
        let shape = ShapeRequest { sockets, dies, clusters, cores, threads };
        report(&TopologyRequest { shape, ..TopologyRequest::even(cpus, nodes, 4 << 30).unwrap() })
    }

    #[test]
    fn a_tree_leaves_out_levels_of_one() {
        let mut request = TopologyRequest::even(3, 2, 2 << 30).unwrap();
        request.nodes.push(NodeRequest { memory_bytes: 1 << 20, ..NodeRequest::default() });
        let want = "\
Machine (3 CPUs, 2049 MiB)
├─ NUMA node 0 (CPUs 0-1, 1 GiB)
│  └─ Package 0, L3 16 MiB
│     ├─ Core 0, L2 1 MiB, L1i 32 KiB, L1d 32 KiB: CPU 0 (APIC id 0)
│     └─ Core 1, L2 1 MiB, L1i 32 KiB, L1d 32 KiB: CPU 1 (APIC id 1)
├─ NUMA node 1 (CPUs 2, 1 GiB)
│  └─ Package 1, L3 16 MiB
│     └─ Core 0, L2 1 MiB, L1i 32 KiB, L1d 32 KiB: CPU 2 (APIC id 2)
└─ NUMA node 2 (no CPUs, 1 MiB)
";
        assert_eq!(tree(&report(&request)), want);
    }

    #[test]
    fn a_tree_shows_every_level_that_is_there() {
        let want = "\
Machine (8 CPUs, 4 GiB)
└─ NUMA node 0 (CPUs 0-7, 4 GiB)
   └─ Package 0
      ├─ Die 0, L3 16 MiB
      │  ├─ Cluster 0, L2 1 MiB
      │  │  └─ Core 0, L1i 32 KiB, L1d 32 KiB
      │  │     ├─ CPU 0 (APIC id 0)
      │  │     └─ CPU 1 (APIC id 1)
      │  └─ Cluster 1, L2 1 MiB
      │     └─ Core 0, L1i 32 KiB, L1d 32 KiB
      │        ├─ CPU 2 (APIC id 2)
      │        └─ CPU 3 (APIC id 3)
      └─ Die 1, L3 16 MiB
         ├─ Cluster 0, L2 1 MiB
         │  └─ Core 0, L1i 32 KiB, L1d 32 KiB
         │     ├─ CPU 4 (APIC id 4)
         │     └─ CPU 5 (APIC id 5)
         └─ Cluster 1, L2 1 MiB
            └─ Core 0, L1i 32 KiB, L1d 32 KiB
               ├─ CPU 6 (APIC id 6)
               └─ CPU 7 (APIC id 7)
";
        assert_eq!(tree(&shaped(8, 1, [1, 2, 2, 1, 2])), want);
    }

    #[test]
    fn tables_are_aligned() {
        let want = "\
CPU  APIC id  package  die  cluster  core  thread  node
  0        0        0    0        0     0       0     0
  1        1        0    0        0     1       0     0
  2        2        0    0        0     2       0     0
  3        4        1    0        0     0       0     1
  4        5        1    0        0     1       0     1
  5        6        1    0        0     2       0     1

node  CPUs  memory  distance to:   0   1
   0   0-2   2 GiB                10  20
   1   3-5   2 GiB                20  10

cache    size  ways  line  shared by
  L1d  32 KiB     8    64       core
  L1i  32 KiB     8    64       core
   L2   1 MiB    16    64       core
   L3  16 MiB    16    64        die
";
        assert_eq!(table(&shaped(6, 2, [2, 1, 1, 3, 1])), want);
    }

    #[test]
    fn json_has_stable_keys() {
        let json = serde_json::to_value(shaped(2, 1, [1, 1, 1, 1, 2])).unwrap();
        assert_eq!(json["shape"], serde_json::json!({"packages":1,"dies":1,"clusters":1,"cores":1,"threads":2}));
        let ranges = serde_json::json!([{"start":0,"end":3_221_225_472_u64},{"start":4_294_967_296_u64,"end":5_368_709_120_u64}]);
        let node = serde_json::json!({"node":0,"cpus":"0-1","memory_bytes":4_294_967_296_u64,"ranges":ranges});
        assert_eq!(json["nodes"][0], node);
        let cpu = serde_json::json!({
            "index":1,"apic_id":1,"package":0,"die":0,"cluster":0,"core":0,"thread":1,"node":0
        });
        assert_eq!(json["vcpus"][1], cpu);
        let l3 = serde_json::json!({
            "name":"L3","level":3,"kind":"unified","size_bytes":16_777_216,"ways":16,"line_bytes":64,"shared_by":"die"
        });
        assert_eq!(json["caches"][3], l3);
        assert_eq!(json["distances"], serde_json::json!([[10]]));
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!([0, 4097, 1 << 10, 1408 << 10, 3 << 40].map(size), ["0 B", "4097 B", "1 KiB", "1408 KiB", "3 TiB"]);
    }
}
