// SPDX-License-Identifier: Apache-2.0
//! The whole run at a glance: for each workload and ratio how far each arm is from the best one there.
//!
//! Invariant: an arm is said to lose only where a test shows it; one that is merely lower stands there with its number.

use std::fmt::Write;

use super::number::{NOTHING, factor};
use super::table::load;
use crate::analysis::{Analysis, Group, Row};
use crate::stats::Verdict;

/// Where an arm stands among the arms of its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    /// No arm did more.
    Best,
    /// So much of the best, and not shown to be less.
    Near(f64),
    /// So much of the best, and shown to be less.
    Behind(f64),
    /// It brought nothing in at least one run, and cannot be compared.
    Nothing,
    /// There is no run of it, or too few of them.
    Unknown,
}

impl Standing {
    pub(super) fn of(group: &Group, row: &Row) -> Self {
        if group.best.as_deref() == Some(&row.arm) {
            return Self::Best;
        }
        match row.to_best {
            Some(to_best) if to_best.verdict == Verdict::Less => Self::Behind(to_best.difference.ratio),
            Some(to_best) => Self::Near(to_best.difference.ratio),
            None if row.values.iter().any(|value| value.operations_per_s <= 0.0) => Self::Nothing,
            None => Self::Unknown,
        }
    }

    /// What stands in a cell.
    pub(super) fn text(self) -> String {
        match self {
            Self::Best => "best".to_owned(),
            Self::Near(ratio) => share(ratio),
            Self::Behind(ratio) => format!("{} less", share(ratio)),
            Self::Nothing => "nothing".to_owned(),
            Self::Unknown => NOTHING.to_owned(),
        }
    }

    /// How dark the cell is, from 0 to 1: by the logarithm, for rates differ by factors.
    pub(super) fn shade(self) -> f64 {
        match self {
            Self::Best | Self::Near(_) | Self::Unknown => 0.0,
            Self::Behind(ratio) => (0.15 - ratio.max(1e-9).log10() / 3.0).clamp(0.0, 1.0),
            Self::Nothing => 1.0,
        }
    }
}

/// A share of the best: `0.83`, or `1/650` where that says more.
fn share(ratio: f64) -> String {
    if ratio >= 0.1 { format!("{ratio:.2}") } else { format!("1/{:.0}", 1.0 / ratio) }
}

/// The arms, in the order of the plan.
pub(super) fn arms(analysis: &Analysis) -> Vec<&str> {
    analysis.groups.first().map_or_else(Vec::new, |group| group.rows.iter().map(|row| row.arm.as_str()).collect())
}

/// How the overview is to be read.
pub(super) const LEGEND: &str = "Each arm as a share of the best arm of its row (of the geometric means of operations a \
                                 second). `less`: shown to be less, by the test below, corrected for all cells of this \
                                 table; without it the difference may be chance. The best arm is the one that was best in \
                                 these runs.";

/// The overview as Markdown.
pub(super) fn markdown(analysis: &Analysis) -> String {
    let arms = arms(analysis);
    let mut text = format!("| workload | ratio (guests of vCPUs) | {} |\n|---|---|", arms.join(" | "));
    text.push_str(&"---|".repeat(arms.len()));
    text.push('\n');
    for group in &analysis.groups {
        let cells: Vec<String> = group.rows.iter().map(|row| Standing::of(group, row).text()).collect();
        let _ = writeln!(text, "| {} | {} | {} |", group.workload, load(group), cells.join(" | "));
    }
    let _ = writeln!(text, "\n{LEGEND}\n");
    sentences(analysis).iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    text
}

/// One sentence an arm: where it stands, and where it is shown to lose, to whom.
pub(super) fn sentences(analysis: &Analysis) -> Vec<String> {
    arms(analysis).iter().enumerate().map(|(at, arm)| sentence(analysis, at, arm)).collect()
}

fn sentence(analysis: &Analysis, at: usize, arm: &str) -> String {
    let rows = || analysis.groups.iter().filter_map(|group| group.rows.get(at).map(|row| (group, row)));
    let count = |wanted: fn(&Standing) -> bool| rows().filter(|(group, row)| wanted(&Standing::of(group, row))).count();
    let losses: Vec<String> = rows().filter_map(|(group, row)| loss(group, row)).collect();
    let mut text = format!(
        "{arm}: best in {} of {}, not shown to be less than the best in {} more",
        count(|standing| *standing == Standing::Best),
        analysis.groups.len(),
        count(|standing| matches!(standing, Standing::Near(_)))
    );
    if !losses.is_empty() {
        let _ = write!(text, "; loses in {}: {}", losses.len(), losses.join(", "));
    }
    text
}

/// Where and to whom an arm loses: the share with its interval.
fn loss(group: &Group, row: &Row) -> Option<String> {
    let at = format!("{} {}x", group.workload, group.ratio);
    match Standing::of(group, row) {
        Standing::Behind(ratio) => {
            let interval = row.to_best?.difference.interval;
            let best = group.best.as_deref().unwrap_or(NOTHING);
            let (low, high) = (factor(interval.low), factor(interval.high));
            Some(format!("{at} ({} of {best}, {low} to {high})", share(ratio)))
        }
        Standing::Nothing => Some(format!("{at} (nothing in a run)")),
        Standing::Best | Standing::Near(_) | Standing::Unknown => None,
    }
}
