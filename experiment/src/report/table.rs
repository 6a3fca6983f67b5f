// SPDX-License-Identifier: Apache-2.0
//! The analysis as Markdown: a table a workload in the form of the kernel lists (minimum, maximum, average, standard
//! deviation, change), then what lies beside the throughput, then what went wrong.

use std::fmt::Write;

use super::number::{self, NOTHING, optional, percent, rate};
use super::overview;
use crate::analysis::{Analysis, Group, Row};
use crate::stats::Method;

/// The whole report as Markdown.
#[must_use]
pub fn markdown(analysis: &Analysis) -> String {
    let mut text = format!("# {}\n\n", analysis.run.plan);
    if !analysis.description.is_empty() {
        let _ = writeln!(text, "{}\n", analysis.description);
    }
    for line in facts(analysis) {
        let _ = writeln!(text, "- {line}");
    }
    let warning = not_quiet(analysis).map_or_else(String::new, |warning| format!("**{warning}**\n\n"));
    let _ = write!(text, "\n## At a glance\n\n{warning}{}", overview::markdown(analysis));
    for workload in workloads(analysis) {
        let _ = write!(text, "\n## {workload}\n\nOperations a second of all guests together; higher is better.\n\n");
        throughput(&mut text, analysis, workload);
        text.push_str("\nBeside it:\n\n");
        beside(&mut text, analysis, workload);
    }
    notes(&mut text, analysis);
    text
}

/// What has to be known to judge the numbers, one sentence each.
pub(super) fn facts(analysis: &Analysis) -> Vec<String> {
    let host = &analysis.run.host;
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let parameters: Vec<String> =
        host.kvm_parameters.iter().map(|(name, value)| format!("{} {value}", short(name))).collect();
    let mut facts = vec![
        format!(
            "vmm {}{}, Linux {}, KVM {}{}{}",
            analysis.run.version,
            analysis.run.program.as_ref().map_or_else(String::new, |build| format!(" (build {build})")),
            known(&host.kernel),
            host.kvm,
            if parameters.is_empty() { "" } else { ", " },
            parameters.join(", ")
        ),
        format!(
            "{}, CPUs online {}, SMT {}, governor {}; the guests shared host CPUs {}",
            known(&host.cpu_model),
            known(&host.cpus_online),
            known(&host.smt),
            known(&host.governor),
            analysis.cpus
        ),
        format!(
            "{} runs of {} ms each{}, order by seed {}, the arms of a repetition directly after one another",
            analysis.repetitions,
            analysis.window_ms,
            if analysis.warm_up > 0 {
                format!(" after {} that are not counted", analysis.warm_up)
            } else {
                String::new()
            },
            analysis.run.seed
        ),
    ];
    for resumed in &analysis.run.resumed {
        let changes = if resumed.changes.is_empty() {
            "on the same host, by the same program".to_owned()
        } else {
            format!("differently from its beginning: {}", resumed.changes.join("; "))
        };
        facts.push(format!("gone on with after {} of {} cells, {changes}", resumed.done, analysis.cells));
    }
    if analysis.done < analysis.cells {
        facts.push(format!("not complete: {} of {} cells are done", analysis.done, analysis.cells));
    }
    if let Some(load) = analysis.load_before {
        facts.push(format!("load average before the cells: {:.2} to {:.2}, mean {:.2}", load.min, load.max, load.mean));
    }
    if let Some(others) = &analysis.others {
        facts.push(format!(
            "others took {} of the host CPUs' time while cells ran, {} at most ({})",
            percent(others.share.mean),
            percent(others.share.max),
            others.most_in
        ));
    }
    facts
}

/// A warning if others took so much of the host CPUs that the arms may have been measured beside different hosts.
pub(super) fn not_quiet(analysis: &Analysis) -> Option<String> {
    /// A quiet host has a per cent of its own housekeeping.
    const QUIET: f64 = 0.05;
    let share = analysis.others.as_ref()?.share;
    let (mean, most) = (percent(share.mean), percent(share.max));
    (share.mean > QUIET).then(|| {
        format!("The host was not quiet: others took {mean} of its CPUs' time while cells ran, {most} at most.")
    })
}

fn short(parameter: &str) -> &str {
    parameter.rsplit('/').next().unwrap_or(parameter)
}

/// The workloads, in the order of the plan.
pub(super) fn workloads(analysis: &Analysis) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for group in &analysis.groups {
        if !names.contains(&group.workload.as_str()) {
            names.push(&group.workload);
        }
    }
    names
}

/// The ratios of a workload, in the order of the plan.
pub(super) fn groups<'a>(analysis: &'a Analysis, workload: &str) -> Vec<&'a Group> {
    analysis.groups.iter().filter(|group| group.workload == workload).collect()
}

/// The ratios of a workload with their arms.
pub(super) fn rows<'a>(analysis: &'a Analysis, workload: &str) -> impl Iterator<Item = (&'a Group, &'a Row)> {
    groups(analysis, workload).into_iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)))
}

/// `2x (1 of 4)`: ratio, guests and their vCPUs.
pub(super) fn load(group: &Group) -> String {
    format!("{}x ({} of {})", group.ratio, group.guests, group.vcpus)
}

/// Heads of the columns of [`throughput_cells`].
pub(super) const THROUGHPUT: [&str; 12] = [
    "ratio (guests of vCPUs)",
    "arm",
    "n",
    "min",
    "max",
    "average",
    "stdev",
    "median",
    "95 % of the average",
    "change of the average, %",
    "ratio to baseline, its 95 %",
    "p (Holm), verdict",
];

pub(super) fn throughput_cells(analysis: &Analysis, group: &Group, row: &Row) -> Vec<String> {
    let of = |value: fn(&crate::stats::Summary) -> f64| optional(row.throughput.as_ref().map(value), rate);
    let interval = row.interval.map(|interval| format!("{} to {}", rate(interval.low), rate(interval.high)));
    let ratio = row.comparison.map(|comparison| {
        let difference = comparison.difference;
        let (low, high) = (number::factor(difference.interval.low), number::factor(difference.interval.high));
        format!("{} ({low} to {high})", number::factor(difference.ratio))
    });
    let verdict = number::verdict(row, &analysis.baseline);
    let judged = row.comparison.map(|comparison| format!("{}, {verdict}", number::probability(comparison.p_corrected)));
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
    vec![
        load(group),
        row.arm.clone(),
        row.values.len().to_string(),
        of(|summary| summary.min),
        of(|summary| summary.max),
        of(|summary| summary.mean),
        optional(row.throughput.and_then(|summary| summary.stdev), rate),
        of(|summary| summary.median),
        or_nothing(interval),
        optional(row.change_percent.filter(|_| row.arm != analysis.baseline), number::change),
        or_nothing(ratio),
        judged.unwrap_or_else(|| verdict.to_owned()),
    ]
}

/// Heads of the columns of [`beside_cells`].
pub(super) const BESIDE: [&str; 12] = [
    "ratio (guests of vCPUs)",
    "arm",
    "spinning",
    "steal",
    "p99 of the wait, us",
    "Jain, vCPUs",
    "Jain, guests",
    "pause events/s",
    "actions per operation",
    "boosted",
    "bail-outs, why most",
    "windows differ by, ms",
];

pub(super) fn beside_cells(group: &Group, row: &Row) -> Vec<String> {
    let details = &row.details;
    vec![
        load(group),
        row.arm.clone(),
        optional(details.spin_share, percent),
        optional(details.steal_share, percent),
        optional(details.wait_p99_us, rate),
        optional(details.vcpus_jain, |index| format!("{index:.3}")),
        optional(details.guests_jain, |index| format!("{index:.3}")),
        format!("{:.0}", details.events_per_s),
        optional(details.actions_per_operation, |actions| format!("{actions:.3}")),
        optional(details.boosted_share, percent),
        bailed(row),
        if group.guests > 1 { format!("{:.1}", details.ended_late_ms) } else { NOTHING.to_owned() },
    ]
}

/// `12345 (98 % nobody_waiting)`: bail-outs of all runs, and the most frequent reason.
#[expect(clippy::cast_precision_loss, reason = "counts of runs of minutes are far below 2^53")]
fn bailed(row: &Row) -> String {
    let all: u64 = row.details.bailed.values().sum();
    let most = row.details.bailed.iter().filter(|(_, count)| **count > 0).max_by_key(|(_, count)| **count);
    most.map_or_else(
        || NOTHING.to_owned(),
        |(reason, count)| format!("{all} ({:.0} % {reason})", 100.0 * *count as f64 / all as f64),
    )
}

fn head(text: &mut String, columns: &[&str]) {
    let _ = writeln!(text, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
}

fn throughput(text: &mut String, analysis: &Analysis, workload: &str) {
    head(text, &THROUGHPUT);
    for (group, row) in rows(analysis, workload) {
        let _ = writeln!(text, "| {} |", throughput_cells(analysis, group, row).join(" | "));
    }
}

fn beside(text: &mut String, analysis: &Analysis, workload: &str) {
    head(text, &BESIDE);
    for (group, row) in rows(analysis, workload) {
        let _ = writeln!(text, "| {} |", beside_cells(group, row).join(" | "));
    }
}

/// What lies far from the others, one sentence each. It is counted all the same.
pub(super) fn outliers(analysis: &Analysis) -> Vec<String> {
    let mut lines = Vec::new();
    for group in &analysis.groups {
        for row in &group.rows {
            let far = row.values.iter().filter(|value| value.is_outlier);
            lines.extend(far.map(|value| {
                format!(
                    "{} {}x {} #{}: {} operations/s",
                    group.workload,
                    group.ratio,
                    row.arm,
                    value.repetition + 1,
                    rate(value.operations_per_s)
                )
            }));
        }
    }
    lines
}

/// How the tables are to be read.
pub(super) fn legend(analysis: &Analysis) -> String {
    let pairs = |row: &Row| row.comparison.is_some_and(|comparison| comparison.difference.method == Method::Paired);
    let all = || analysis.groups.iter().flat_map(|group| &group.rows).filter(|row| row.comparison.is_some());
    let tests = match (all().any(pairs), all().all(pairs)) {
        (_, true) => "Student's t-test of pairs",
        (true, false) => "Student's t-test of pairs, Welch's where there are none",
        (false, false) => "Welch's t-test",
    };
    format!(
        "The change is that of the average, in per cent of the average of `{}`. The ratio is that of the geometric means, \
         with the interval that holds it with 95 %. p is of {tests} on logarithms, corrected for {} comparisons (Holm); \
         below 0.05 a difference counts as shown. No difference shown does not mean that there is none: the interval says \
         how large it may be. What brought nothing in a run cannot be compared by logarithms. The interval of the average is by bootstrap. Spinning and steal are shares of the vCPUs' \
         time; steal and the ledger include the start and the end of the guests.",
        analysis.baseline, analysis.comparisons
    )
}

fn notes(text: &mut String, analysis: &Analysis) {
    let _ = writeln!(text, "\n{}", legend(analysis));
    let outliers = outliers(analysis);
    if !outliers.is_empty() {
        text.push_str(
            "\nFar from the others of their arm (beyond 1.5 interquartile ranges), and counted all the same:\n\n",
        );
        outliers.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    }
    if !analysis.failures.is_empty() {
        text.push_str("\nWithout a number:\n\n");
        let lines = analysis.failures.iter();
        lines.for_each(|failure| text.push_str(&format!("- {}: {}\n", failure.cell, failure.why)));
    }
}
