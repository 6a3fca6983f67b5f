// SPDX-License-Identifier: Apache-2.0
//! What a sweep brought: points ranked, those that no other beats marked, as table and chart.
//!
//! Invariant: a point is on the front exactly when no other has at least its throughput and its fairness and more of one.

use std::fmt::Write as _;

use serde::Serialize;

use crate::page::{self, escaped};

/// One point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepRow {
    /// Its settings; empty for the arm as the file has it.
    pub settings: Vec<String>,
    /// Geometric mean over the cases of its throughput as per cent of the unchanged arm's.
    pub throughput_percent: f64,
    /// The same in the case where it is least.
    pub worst_percent: f64,
    /// Jain's index over the vCPUs of a VM, the least of all VMs, mean over the seeds, the least of all cases.
    pub fairness: f64,
    /// No other point is better in one and as good in the other.
    pub front: bool,
    /// Operations a second by case, means over the seeds.
    pub operations_per_s: Vec<f64>,
}

/// A sweep's points, best throughput first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepReport {
    /// Scenarios and their conditions.
    pub cases: Vec<String>,
    /// First seed.
    pub seed: u64,
    /// Seeds of each point in each case.
    pub runs: usize,
    /// Points.
    pub rows: Vec<SweepRow>,
}

pub(super) fn row(settings: &[(String, String)], throughput: (&[f64], &[f64]), fairness: &[f64]) -> SweepRow {
    let (mine, base) = throughput;
    // A case in which the unchanged arm brings nothing tells nothing.
    let shares: Vec<f64> = mine.iter().zip(base).filter(|(_, base)| **base > 0.0).map(|(a, b)| a / b).collect();
    let count = f64::from(u32::try_from(shares.len().max(1)).unwrap_or(u32::MAX));
    let mean = (shares.iter().map(|share| share.max(1e-9).ln()).sum::<f64>() / count).exp();
    SweepRow {
        settings: settings.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        throughput_percent: mean * 100.0,
        worst_percent: shares.iter().copied().fold(f64::INFINITY, f64::min).min(1e9) * 100.0,
        fairness: fairness.iter().copied().fold(1.0, f64::min),
        front: false,
        operations_per_s: mine.to_vec(),
    }
}

impl SweepReport {
    pub(super) fn new(cases: Vec<String>, seed: u64, runs: usize, mut rows: Vec<SweepRow>) -> Self {
        let better = |a: &SweepRow, b: &SweepRow| {
            let (more, fairer) = (a.throughput_percent - b.throughput_percent, a.fairness - b.fairness);
            more >= 0.0 && fairer >= 0.0 && (more > 0.0 || fairer > 0.0)
        };
        let front: Vec<bool> = rows.iter().map(|row| !rows.iter().any(|other| better(other, row))).collect();
        rows.iter_mut().zip(front).for_each(|(row, front)| row.front = front);
        rows.sort_by(|a, b| b.throughput_percent.total_cmp(&a.throughput_percent));
        Self { cases, seed, runs, rows }
    }

    /// The ranking as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} points in {} cases, {} seeds from {}; 100 % is the arm as its file has it\n",
            self.rows.len(),
            self.cases.len(),
            self.runs,
            self.seed
        );
        for case in &self.cases {
            let _ = writeln!(text, "  {case}");
        }
        let _ = writeln!(text, "\n{:>12} {:>12} {:>6} {:5} settings", "throughput", "worst case", "Jain", "front");
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:>10.2} % {:>10.2} % {:>6.4} {:5} {}",
                row.throughput_percent,
                row.worst_percent,
                row.fairness,
                if row.front { "*" } else { "" },
                label(row)
            );
        }
        text
    }

    /// Throughput against fairness as an SVG picture, the front in red and joined.
    #[must_use]
    pub fn chart(&self) -> String {
        const WIDTH: f64 = 720.0;
        const HEIGHT: f64 = 420.0;
        const EDGE: f64 = 60.0;
        let span = |of: &dyn Fn(&SweepRow) -> f64| {
            let low = self.rows.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = self.rows.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
            (low, (high - low).max(1e-6))
        };
        let (left, wide) = span(&|row| row.throughput_percent);
        let (bottom, tall) = span(&|row| row.fairness);
        let x = |row: &SweepRow| EDGE + (row.throughput_percent - left) / wide * (WIDTH - 2.0 * EDGE);
        let y = |row: &SweepRow| HEIGHT - EDGE - (row.fairness - bottom) / tall * (HEIGHT - 2.0 * EDGE);
        let mut svg = page::open(WIDTH, HEIGHT, "Throughput against fairness");
        let path: Vec<String> =
            self.rows.iter().filter(|row| row.front).map(|row| format!("{:.1},{:.1}", x(row), y(row))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#c33\"/>", path.join(" "));
        for row in &self.rows {
            let colour = if row.front { "#c33" } else { "#4a7ab5" };
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"><title>{}</title></circle>",
                x(row),
                y(row),
                escaped(&label(row))
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{EDGE}\" y=\"{:.0}\">throughput, {left:.1} to {:.1} % of the unchanged arm</text>\n\
             <text x=\"10\" y=\"40\">Jain's index, {bottom:.4} to {:.4}</text>\n</svg>",
            HEIGHT - 20.0,
            left + wide,
            bottom + tall
        );
        svg
    }
}

fn label(row: &SweepRow) -> String {
    if row.settings.is_empty() { "as in the file".to_owned() } else { row.settings.join(" ") }
}
