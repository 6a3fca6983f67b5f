// SPDX-License-Identifier: Apache-2.0
//! A plan as a table for people: one row per run of vCPUs with the same reason.
//!
//! Invariant: text only, the same plan always gives the same text.

use std::fmt::Write as _;

use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostCpu, VcpuIndex};

use super::{Decision, Guest, Note, Place, Plan};

/// The plan as a table: which vCPUs of which guest node go where, by which rule, and the best CPU that was left.
#[must_use]
pub fn table(host: &HostTopology, guest: &Guest, plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for home in &plan.homes {
        let host = home.host.map_or_else(|| "any".to_owned(), |host| format!("node {host}"));
        let _ = writeln!(text, "memory of guest node {} on {host}", home.guest);
    }
    if plan.places.is_empty() {
        let _ = writeln!(text, "vCPUs wherever the kernel puts them within {}", host.usable());
        return text;
    }
    let header = ["vcpus", "guest node", "host node", "cpus in order", "rule", "score", "runner-up"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(
        plan.places.chunk_by(|a, b| key(host, guest, a) == key(host, guest, b)).map(|run| row(host, guest, run)),
    );
    let widths: Vec<usize> =
        (0..header.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    for note in &plan.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// What two neighbouring vCPUs must share to be in one row.
fn key(host: &HostTopology, guest: &Guest, place: &Place) -> impl PartialEq + use<> {
    let Decision { rule, score, runner_up, to, vcpu, .. } = place.decision;
    let node = host.index_of(to).map(|cpu| host.cpus()[cpu].node);
    (rule, score, runner_up, node, guest.vcpus.get(vcpu.index()).map(|vcpu| vcpu.node))
}

fn row(host: &HostTopology, guest: &Guest, run: &[Place]) -> [String; 7] {
    let first = &run[0].decision;
    let vcpus: CpuSet<VcpuIndex> = run.iter().map(|place| place.decision.vcpu).collect();
    let cpus: Vec<HostCpu> = run.iter().map(|place| place.decision.to).collect();
    let node = guest.vcpus.get(first.vcpu.index()).and_then(|vcpu| guest.nodes.get(vcpu.node));
    let host_node = host.index_of(first.to).map(|cpu| host.nodes()[host.cpus()[cpu].node].id);
    let second = first.runner_up.map(|second| format!("cpu {} ({})", second.cpu, second.score));
    [
        vcpus.to_string(),
        node.map_or_else(String::new, |node| node.id.to_string()),
        host_node.map_or_else(String::new, |node| node.to_string()),
        in_order(&cpus),
        first.rule.to_string(),
        first.score.to_string(),
        second.unwrap_or_else(|| "none".to_owned()),
    ]
}

/// CPUs in the order given, with runs of neighbours as ranges.
fn in_order(cpus: &[HostCpu]) -> String {
    let runs = cpus.chunk_by(|a, b| a.0 + 1 == b.0).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    runs.collect::<Vec<_>>().join(",")
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared { cpus } => write!(f, "more vCPUs than CPUs: {cpus} carry several"),
            Self::DoubleBooked { cpus } => write!(f, "claimed by other VMs as well: {cpus}"),
            Self::Spilled { guest, vcpus } => {
                write!(f, "no room at home for vCPUs {vcpus} of guest node {guest}: they run on other host nodes")
            }
            Self::MemoryShort { guest, host } => {
                write!(f, "host node {host} has too little free memory for guest node {guest}")
            }
        }
    }
}
