// SPDX-License-Identifier: Apache-2.0
//! Compares what hwloc (`lstopo --of console`) makes of the guest with what the doctor says of the same machine. Pure.

use std::collections::{BTreeMap, BTreeSet};

use topology::cpu_set::CpuSet;
use topology::doctor::{CpuReport, Report};
use topology::guest::Position;
use topology::id::VcpuIndex;

/// What stands before each of its lines on the console.
const MARK: &str = "lstopo|";

type Cpus = CpuSet<VcpuIndex>;

/// The objects of a kind: for each the CPUs below it.
#[derive(Debug, Default)]
struct Tree {
    /// By kind, such as `Package` or `L2`.
    objects: BTreeMap<String, BTreeSet<String>>,
    /// CPUs near a node, by the number Linux gives it.
    nodes: BTreeMap<u32, String>,
}

/// A line: its depth, and what is on it.
struct Line<'a> {
    depth: usize,
    objects: Vec<&'a str>,
    cpus: Vec<VcpuIndex>,
}

impl Tree {
    fn parse(console: &str) -> Self {
        let mut lines: Vec<Line<'_>> = Vec::new();
        for text in console.lines().filter_map(|line| line.strip_prefix(MARK)) {
            let depth = text.len() - text.trim_start().len();
            let objects: Vec<&str> = text.trim().split(" + ").collect();
            let cpus = objects.iter().filter(|object| object.starts_with("PU ")).filter_map(|object| number(object));
            lines.push(Line { depth, objects: objects.clone(), cpus: cpus.map(VcpuIndex).collect() });
        }
        let mut tree = Self::default();
        for (at, line) in lines.iter().enumerate() {
            let below = lines[at + 1..].iter().take_while(|other| other.depth > line.depth);
            let cpus: Cpus =
                line.cpus.iter().copied().chain(below.flat_map(|other| other.cpus.iter().copied())).collect();
            for object in &line.objects {
                let kind = object.split(' ').next().unwrap_or_default();
                match number(object) {
                    // A node is a leaf beside the objects whose memory it is.
                    Some(node) if kind == "NUMANode" => {
                        let near = around(&lines[..at], line.depth, &lines[at + 1..]);
                        tree.nodes.insert(node, near.to_string());
                    }
                    _ => drop(tree.objects.entry(kind.to_owned()).or_default().insert(cpus.to_string())),
                }
            }
        }
        tree
    }
}

/// The CPUs of the object that a line of this depth lies in: all in the lines around it that are as deep or deeper.
fn around(before: &[Line<'_>], depth: usize, after: &[Line<'_>]) -> Cpus {
    let inside = |line: &&Line<'_>| line.depth >= depth;
    let lines = before.iter().rev().take_while(inside).chain(after.iter().take_while(inside));
    lines.flat_map(|line| line.cpus.iter().copied()).collect()
}

/// The number that Linux gives an object: `P#3` in `PU L#0 (P#3)`.
fn number(object: &str) -> Option<u32> {
    let (_, rest) = object.split_once("P#")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Everything in which hwloc differs from the doctor, in words; empty when they agree.
pub(crate) fn differences(console: &str, doctor: &Report) -> Vec<String> {
    let tree = Tree::parse(console);
    let mut list = Vec::new();
    let mut kind = |kind: &str, wanted: BTreeSet<String>| {
        let seen = tree.objects.get(kind).cloned().unwrap_or_default();
        if seen != wanted {
            list.push(format!("hwloc: {kind} {seen:?} instead of {wanted:?}"));
        }
    };
    let all = |key: &dyn Fn(&Position) -> [u32; 5]| -> BTreeSet<String> {
        doctor.cpus.iter().map(|cpu| sharing(doctor, cpu, key)).collect()
    };
    let packages = all(&|at| [at.package, 0, 0, 0, 0]);
    let dies = all(&|at| [at.package, at.die, 0, 0, 0]);
    kind("Core", all(&|at| [at.package, at.die, at.cluster, at.core, 0]));
    kind("PU", all(&|at| [at.package, at.die, at.cluster, at.core, at.thread]));
    // hwloc leaves out a level of dies that says the same as the packages.
    if dies != packages {
        kind("Die", dies);
    }
    kind("Package", packages);
    for name in ["L1d", "L1i", "L2", "L3"] {
        let caches = doctor.cpus.iter().flat_map(|cpu| &cpu.caches).filter(|cache| cache.name == name);
        kind(name, caches.map(|cache| cache.shared_by.to_string()).collect());
    }
    // A node without CPUs is near to none of them more than to another.
    let numbers: BTreeSet<u32> = doctor.nodes.iter().map(|node| node.node.0).collect();
    if tree.nodes.keys().copied().collect::<BTreeSet<_>>() != numbers {
        list.push(format!("hwloc: nodes {:?} instead of {numbers:?}", tree.nodes.keys()));
    }
    for node in doctor.nodes.iter().filter(|node| !node.cpus.is_empty()) {
        let seen = tree.nodes.get(&node.node.0);
        if seen != Some(&node.cpus.to_string()) {
            list.push(format!("hwloc: node {} near {seen:?} instead of {}", node.node, node.cpus));
        }
    }
    list
}

/// The CPUs that have the same key as this one.
fn sharing(doctor: &Report, cpu: &CpuReport, key: &dyn Fn(&Position) -> [u32; 5]) -> String {
    let same = doctor.cpus.iter().filter(|other| key(&other.position) == key(&cpu.position));
    same.map(|other| other.cpu).collect::<Cpus>().to_string()
}
