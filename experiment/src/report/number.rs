// SPDX-License-Identifier: Apache-2.0
//! How numbers are written: as many digits as runs of this kind are worth.

use crate::analysis::Row;
use crate::stats::Verdict;

/// What stands where there is no number.
pub(super) const NOTHING: &str = "–";

/// An operation rate.
pub(super) fn rate(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn optional(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), shown)
}

/// A share as per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A change in per cent, with its sign.
pub(super) fn change(percent: f64) -> String {
    match percent.abs() {
        size if size >= 1000.0 => format!("{percent:+.0}"),
        _ => format!("{percent:+.1}"),
    }
}

/// A factor.
pub(super) fn factor(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A probability.
pub(super) fn probability(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// What follows for a row.
pub(super) fn verdict(row: &Row, baseline: &str) -> &'static str {
    match row.comparison.map(|comparison| comparison.verdict) {
        _ if row.arm == baseline => "baseline",
        Some(Verdict::More) => "more",
        Some(Verdict::Less) => "less",
        Some(Verdict::NoDifferenceShown) => "no difference shown",
        None => "cannot be compared",
    }
}
