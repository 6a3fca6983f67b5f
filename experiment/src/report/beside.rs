// SPDX-License-Identifier: Apache-2.0
//! Two runs side by side.
//!
//! Runs of different times have no pairs: each arm of one is compared with the same arm of the other by Welch's test, all
//! comparisons corrected together. Invariant: where the hosts or the plans differ, that stands first.

use std::fmt::Write;

use super::number::{NOTHING, change, factor, optional, probability, rate};
use crate::analysis::{Analysis, Group, Row};
use crate::plan::ArmSettings;
use crate::stats::{Verdict, compare_unpaired, holm};

/// Both runs as text, `other` measured against `base`.
#[must_use]
pub fn side_by_side(base: &Analysis, other: &Analysis) -> String {
    let mut text = String::new();
    for difference in base.run.host.differences(&other.run.host) {
        let _ = writeln!(text, "warning: the hosts differ: {difference}");
    }
    for difference in base.run.program_differences(&other.run) {
        let _ = writeln!(text, "warning: the programs differ: {difference}");
    }
    for difference in plan_differences(base, other) {
        let _ = writeln!(text, "warning: the runs differ: {difference}");
    }
    let pairs = pairs(base, other);
    let differences: Vec<_> = pairs.iter().map(|(_, a, b)| compare_unpaired(&rates(b), &rates(a))).collect();
    let corrected = holm(&differences.iter().flatten().map(|difference| difference.p).collect::<Vec<_>>());
    let mut corrected = corrected.into_iter();
    let _ = writeln!(
        text,
        "\n| workload | ratio | arm | base | stdev | other | stdev | change, % | ratio, its 95 % | p (Holm, Welch), verdict \
         |\n|{}",
        "---|".repeat(10)
    );
    for ((group, a, b), difference) in pairs.iter().zip(&differences) {
        let (ratio, judged) = match difference {
            None => (NOTHING.to_owned(), "cannot be compared".to_owned()),
            Some(difference) => {
                let p = corrected.next().unwrap_or(1.0);
                let said = match difference.verdict(p) {
                    Verdict::More => "more",
                    Verdict::Less => "less",
                    Verdict::NoDifferenceShown => "no difference shown",
                };
                let (low, high) = (factor(difference.interval.low), factor(difference.interval.high));
                let ratio = format!("{} ({low} to {high})", factor(difference.ratio));
                (ratio, format!("{}, {said}", probability(p)))
            }
        };
        let mean = |row: &Row| row.throughput.map(|summary| summary.mean);
        let changed = mean(a).filter(|a| *a > 0.0).zip(mean(b)).map(|(a, b)| 100.0 * (b - a) / a);
        let stdev = |row: &Row| optional(row.throughput.and_then(|summary| summary.stdev), rate);
        let _ = writeln!(
            text,
            "| {} | {}x | {} | {} | {} | {} | {} | {} | {ratio} | {judged} |",
            group.workload,
            group.ratio,
            a.arm,
            optional(mean(a), rate),
            stdev(a),
            optional(mean(b), rate),
            stdev(b),
            optional(changed, change)
        );
    }
    text
}

fn rates(row: &Row) -> Vec<f64> {
    row.values.iter().map(|value| value.operations_per_s).collect()
}

/// Arms that both have, on the same guests.
fn pairs<'a>(base: &'a Analysis, other: &'a Analysis) -> Vec<(&'a Group, &'a Row, &'a Row)> {
    let mut pairs = Vec::new();
    for group in &base.groups {
        let Some(partner) = other.groups.iter().find(|other| is_same(group, other)) else { continue };
        for row in &group.rows {
            pairs.extend(partner.rows.iter().find(|other| other.arm == row.arm).map(|other| (group, row, other)));
        }
    }
    pairs
}

fn is_same(a: &Group, b: &Group) -> bool {
    (&a.workload, a.guests, a.vcpus) == (&b.workload, b.guests, b.vcpus) && (a.ratio - b.ratio).abs() < 1e-9
}

/// What an arm changes, in one line.
fn shown(settings: &ArmSettings) -> String {
    let text = serde_json::to_string(settings).expect("invariant: plain data is JSON");
    text.replace('"', "")
}

fn plan_differences(base: &Analysis, other: &Analysis) -> Vec<String> {
    let rows = [
        ("host CPUs", base.cpus.clone(), other.cpus.clone()),
        ("window, ms", base.window_ms.to_string(), other.window_ms.to_string()),
        ("plan", base.run.plan.clone(), other.run.plan.clone()),
    ];
    let mut lines: Vec<String> =
        rows.into_iter().filter(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a} and {b}")).collect();
    for (name, settings) in &base.arms {
        let changed = other.arms.get(name).filter(|other| *other != settings);
        lines.extend(changed.map(|other| format!("arm {name}: {} and {}", shown(settings), shown(other))));
    }
    let common = pairs(base, other).len();
    let of = |analysis: &Analysis| analysis.groups.iter().map(|group| group.rows.len()).sum::<usize>();
    if common < of(base) || common < of(other) {
        lines.push(format!("{common} arms are in both, of {} and {}", of(base), of(other)));
    }
    lines
}
