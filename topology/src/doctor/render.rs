// SPDX-License-Identifier: Apache-2.0
//! The diagnosis as text: nodes, CPUs with their domains, caches, then what is wrong and what to do.

use std::fmt;

use super::Report;
use super::report::{CpuReport, NodeReport};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>4}  {:<16} {:>10}  distances", "node", "cpus", "memory")?;
        self.nodes.iter().try_for_each(|node| write_node(f, node))?;
        writeln!(
            f,
            "\n{:>4} {:>5} {:>4} {:>4} {:>4} {:>4} {:>4} {:>4}  scheduler domains",
            "cpu", "apic", "pkg", "die", "cls", "core", "thr", "node"
        )?;
        self.cpus.iter().try_for_each(|cpu| write_cpu(f, cpu))?;
        write_caches(f, self)?;
        for finding in &self.findings {
            writeln!(f, "\nfinding: {finding}\n  remedy: {}", finding.remedy())?;
        }
        for remark in &self.remarks {
            writeln!(f, "\nremark: {remark}")?;
        }
        Ok(())
    }
}

fn write_node(f: &mut fmt::Formatter<'_>, node: &NodeReport) -> fmt::Result {
    let cpus = if node.cpus.is_empty() { "none".to_owned() } else { node.cpus.to_string() };
    write!(f, "{:>4}  {cpus:<16} {:>10} ", node.node, bytes(node.memory_bytes))?;
    node.distances.iter().try_for_each(|distance| write!(f, " {distance:>3}"))?;
    writeln!(f)
}

fn write_cpu(f: &mut fmt::Formatter<'_>, cpu: &CpuReport) -> fmt::Result {
    let at = cpu.position;
    write!(f, "{:>4} {:>5} {:>4} {:>4} {:>4}", cpu.cpu, cpu.apic_id, at.package, at.die, at.cluster)?;
    write!(f, " {:>4} {:>4} {:>4} ", at.core, at.thread, cpu.node)?;
    for domain in &cpu.domains {
        write!(f, " {}", domain.level)?;
        if let Some(distance) = domain.distance {
            write!(f, "({distance})")?;
        }
        write!(f, " {}", domain.span)?;
    }
    writeln!(f, "{}", if cpu.domains.is_empty() { " none" } else { "" })
}

/// One line a cache: it is shared by the same number of CPUs everywhere, or a finding says otherwise.
fn write_caches(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let Some(first) = report.cpus.first() else { return Ok(()) };
    writeln!(f, "\n{:>5} {:>10}  shared by", "cache", "size")?;
    for (place, cache) in first.caches.iter().enumerate() {
        write!(f, "{:>5} {:>10} ", cache.name, bytes(cache.size_bytes))?;
        let sets = report.cpus.iter().filter_map(|cpu| Some((cpu.cpu, &cpu.caches.get(place)?.shared_by)));
        let mut each = sets.filter(|(cpu, set)| set.lowest() == Some(*cpu));
        each.try_for_each(|(_, set)| write!(f, " {set}"))?;
        writeln!(f)?;
    }
    Ok(())
}

fn bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}
