// SPDX-License-Identifier: Apache-2.0
//! All vCPUs as a table: a row each, shares of the time in the run loop. Pure.

use api::wire::{Vcpu, Vcpus};

use super::figures::percent;
use super::render::table;

const HEAD: [&str; 13] = [
    "vcpu", "tid", "state", "cpu", "affinity", "node", "guest", "halted", "waiting", "other", "pauses", "yields",
    "boosted",
];

/// The table; shares are of the time since the machine started.
pub(super) fn render(vcpus: &Vcpus) -> String {
    let head = HEAD.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(vcpus.vcpus.iter().map(row)).collect();
    table(&rows).join("\n") + "\n"
}

fn row(vcpu: &Vcpu) -> Vec<String> {
    let ledger = &vcpu.ledger_ns;
    let share = |ns: u64| format!("{:.1} %", percent(ns, vcpu.run_loop_ns));
    let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    vec![
        vcpu.index.to_string(),
        or_none(vcpu.tid.map(|tid| tid.to_string())),
        vcpu.state.name().to_owned(),
        or_none(vcpu.last_cpu.map(|cpu| cpu.to_string())),
        vcpu.affinity.to_string(),
        vcpu.node.to_string(),
        share(ledger.guest),
        share(ledger.halted.saturating_add(ledger.polling)),
        share(ledger.waiting),
        share(ledger.kernel.saturating_add(ledger.user)),
        vcpu.pause.events.to_string(),
        vcpu.pause.yields.attempted.to_string(),
        vcpu.pause.yields.boosted.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::fake::FakeMonitor;
    use api::monitor::Monitor;

    use super::*;

    #[test]
    fn every_vcpu_has_a_row() {
        let monitor = Arc::new(FakeMonitor::running(12));
        monitor.advance(1_000_000_000);
        let text = render(&monitor.vcpus().unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 13, "{text}");
        assert!(lines[0].trim_start().starts_with("vcpu") && lines[0].ends_with("boosted"), "{text}");
        assert!(lines[12].trim_start().starts_with("11 "), "{text}");
        assert!(lines[1].contains("running") || lines[1].contains("halted"), "{text}");
    }
}
