// SPDX-License-Identifier: Apache-2.0
//! Pictures as SVG: bars with intervals and every single run, and where the time went.
//!
//! Invariant: bars begin at zero, so that lengths are proportions; text is escaped.

use std::fmt::Write;

use super::number::rate;
use super::scaling::colour;
use crate::analysis::{Group, Row};

const WIDTH: f64 = 460.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 100.0;
const ROW: f64 = 30.0;
const TOP: f64 = 30.0;

/// Terms of the ledger with their colours, in the order of [`Ledger::terms`](crate::sample::Ledger::terms).
const LEDGER: [(&str, &str); 6] = [
    ("guest", "#3b7dbd"),
    ("waiting", "#d1495b"),
    ("halted", "#c9ced6"),
    ("polling", "#8fa3b8"),
    ("kernel", "#e8a33d"),
    ("user", "#6b9a5b"),
];

/// Text as it may stand in SVG and HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn open(title: &str, rows: usize) -> String {
    let height = TOP + ROW * f64::from(u32::try_from(rows).unwrap_or(u32::MAX)) + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{0}\">\n<text x=\"4\" y=\"18\" class=\"head\">{0}</text>\n",
        escaped(title)
    )
}

/// The throughput of a group's arms: mean, its interval, every run.
pub(super) fn throughput(group: &Group, title: &str) -> String {
    let tops = group.rows.iter().flat_map(|row| {
        let runs = row.values.iter().map(|value| value.operations_per_s);
        runs.chain(row.interval.map(|interval| interval.high))
    });
    let scale = (WIDTH - LEFT - RIGHT) / tops.fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = open(title, group.rows.len());
    for (at, row) in (0_u32..).zip(&group.rows) {
        bar(&mut svg, row, (TOP + ROW * f64::from(at), scale), colour(at as usize));
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, row: &Row, (y, scale): (f64, f64), colour: &str) {
    let middle = y + ROW / 2.0;
    let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">{}</text>", middle + 4.0, escaped(&row.arm));
    let Some(summary) = row.throughput else {
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\" class=\"dim\">no number</text>", middle + 4.0);
        return;
    };
    let x = |value: f64| LEFT + value * scale;
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\" class=\"bar\" \
         fill=\"{colour}\"/>",
        y + 5.0,
        summary.mean * scale,
        ROW - 10.0
    );
    for value in &row.values {
        let class = if value.is_outlier { "far" } else { "run" };
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.2}\" cy=\"{middle:.1}\" r=\"2.2\" class=\"{class}\"><title>#{}: {}</title></circle>",
            x(value.operations_per_s),
            value.repetition + 1,
            rate(value.operations_per_s)
        );
    }
    let mut end = x(summary.max);
    if let Some(interval) = row.interval {
        let (low, high) = (x(interval.low), x(interval.high));
        let (above, below) = (middle - 5.0, middle + 5.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{low:.2} {above:.1}V{below:.1}M{low:.2} {middle:.1}H{high:.2}M{high:.2} {above:.1}V{below:.1}\" \
             class=\"error\"/>"
        );
        end = end.max(high);
    }
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", end + 8.0, middle + 4.0, rate(summary.mean));
}

/// What the colours of a ledger mean.
pub(super) fn ledger_legend() -> String {
    let mut list = String::from("<ul class=\"legend\">\n");
    for (term, colour) in LEDGER {
        let _ = writeln!(list, "<li><i style=\"background:{colour}\"></i>{term}</li>");
    }
    list.push_str("</ul>\n");
    list
}

/// Where the vCPUs' time went, an arm a bar.
pub(super) fn ledger(group: &Group, title: &str) -> String {
    let bars: Vec<(String, Vec<f64>)> = group
        .rows
        .iter()
        .map(|row| {
            let share = |(term, _): &(&str, &str)| row.details.ledger.get(*term).copied().unwrap_or(0.0);
            (row.arm.clone(), LEDGER.iter().map(share).collect())
        })
        .collect();
    stacked(title, &bars)
}

/// Bars of shares of [`LEDGER`] that add up to 1.
pub(super) fn stacked(title: &str, bars: &[(String, Vec<f64>)]) -> String {
    let mut svg = open(title, bars.len());
    for (at, (name, shares)) in (0_u32..).zip(bars) {
        let y = TOP + ROW * f64::from(at);
        let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">{}</text>", y + ROW / 2.0 + 4.0, escaped(name));
        let mut x = LEFT;
        for ((term, colour), share) in LEDGER.iter().zip(shares) {
            let width = share * (WIDTH - LEFT - 8.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{colour}\"><title>{term} \
                 {:.1} %</title></rect>",
                y + 5.0,
                ROW - 10.0,
                share * 100.0
            );
            x += width;
        }
    }
    svg.push_str("</svg>\n");
    svg
}
