// SPDX-License-Identifier: Apache-2.0
//! Placement at the end of a run: for the report, and in a few lines for a person.

use std::fmt;

use topology::id::VcpuIndex;

use super::pause::Granted;
use crate::placement::account::{Account, Migration, Move};
use crate::placement::memory;
use crate::placement::start::Placement;
use crate::report::{
    LivePlacementReport, MigrationReport, MoveReport, NodeMemoryReport, PairsReport, PlacementReport,
    VcpuPlacementReport, VcpuReport,
};

/// Most pages of a guest node that the kernel is asked for at the end: a few milliseconds.
const MOST_PAGES: usize = 16_384;

/// Where the machine was. The memory is still mapped.
pub(super) fn of_machine(placement: &Placement) -> PlacementReport {
    let memory = placement.memory().iter().map(|node| {
        let located = memory::locate(node, MOST_PAGES).unwrap_or_default();
        NodeMemoryReport {
            node: node.guest.0,
            policy: node.policy.to_string(),
            host_nodes: node.host_nodes.clone(),
            asked_pages: located.asked,
            found_pages: located.pages,
        }
    });
    PlacementReport {
        asked: placement.config().to_string(),
        claimed: placement.claim().map(|record| record.cpus.clone()),
        other_threads: placement.other_cpus().cloned(),
        notes: placement.remarks().to_vec(),
        memory: memory.collect(),
        core_scheduling: placement.core_scheduling().cloned(),
        live: placement.account().map(live),
    }
}

fn live(account: &Account) -> LivePlacementReport {
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let one = |Move { at, decision }: &Move| MoveReport {
        at_ms: whole(at.as_millis()),
        vcpu: decision.vcpu.0,
        from: decision.from,
        to: decision.to,
        swap_with: decision.swap_with.map(|vcpu| vcpu.0),
        rule: decision.rule,
        score: decision.score,
        runner_up: decision.runner_up.map(|second| second.cpu),
    };
    LivePlacementReport {
        looks: account.looks,
        host_changes: account.host_changes,
        refused: account.refused,
        spent_us: whole(account.spent.as_micros()),
        moves: account.moves.clone(),
        last: account.last.iter().map(one).collect(),
        runqueues: account.runqueues.clone(),
        pairs: PairsReport { tried: account.pairs.tried, helped: account.pairs.helped, undone: account.pairs.undone },
        migrations: account.migrations.iter().map(migration).collect(),
    }
}

fn migration(one: &Migration) -> MigrationReport {
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    MigrationReport {
        at_ms: whole(one.at.as_millis()),
        node: one.guest.0,
        from: one.from,
        to: one.to,
        took_us: whole(one.took.as_micros()),
        asked_pages: one.found.asked,
        found_pages: one.found.pages.clone(),
    }
}

/// Where a vCPU's thread was put; `None` where the kernel decided.
pub(super) fn of_vcpu(placement: &Placement, vcpu: VcpuIndex) -> Option<VcpuPlacementReport> {
    let rule = placement.plan()?.places.get(vcpu.index())?.decision.rule;
    let cpus = placement.cpus().get(vcpu.index())?.clone();
    Some(VcpuPlacementReport { cpus, rule })
}

/// Tells a person: runs of vCPUs with the same CPUs and rule, then memory that is tied.
pub(super) fn tell(f: &mut fmt::Formatter<'_>, report: &PlacementReport, vcpus: &[VcpuReport]) -> fmt::Result {
    writeln!(f, "  placement  {}", report.asked)?;
    for run in vcpus.chunk_by(|a, b| a.placement == b.placement) {
        if let ([first, ..], Some(place)) = (run, &run[0].placement) {
            let last = first.index as usize + run.len() - 1;
            let name = if run.len() == 1 { format!("vCPU {last}") } else { format!("vCPUs {}-{last}", first.index) };
            writeln!(f, "    {name} on CPUs {} ({})", place.cpus, place.rule)?;
        }
    }
    for node in report.memory.iter().filter(|node| !node.host_nodes.is_empty()) {
        let found: Vec<String> = node.found_pages.iter().map(|(host, pages)| format!("{pages} on {host}")).collect();
        let found = if found.is_empty() { "none touched".to_owned() } else { found.join(", ") };
        let NodeMemoryReport { node, policy, host_nodes, asked_pages, .. } = node;
        writeln!(f, "    memory of node {node}: {policy} {host_nodes}; of {asked_pages} pages, {found}")?;
    }
    if let Some(grant) = &report.core_scheduling {
        writeln!(f, "    core scheduling: {}", Granted(grant))?;
    }
    let Some(live) = report.live.as_ref().filter(|live| !live.moves.is_empty()) else { return Ok(()) };
    let moves: Vec<String> = live.moves.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
    writeln!(f, "    vCPUs moved while the guest ran: {}; in {} looks", moves.join(", "), live.looks)
}
