// SPDX-License-Identifier: Apache-2.0
//! The close look at one run as pictures: who acted for whom, and the decisions of its middle in time.

use std::fmt::Write;

use super::chart::{self, escaped};
use crate::look::{Deed, LookRecord};
use crate::sample::Ledger;

/// Deeds with their colours, in the order of [`Deed::ALL`].
const COLOURS: [&str; 5] = ["#3b7dbd", "#6b9a5b", "#d1495b", "#c9ced6", "#e8a33d"];
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const WIDE: f64 = 1300.0;

/// The section of the page.
pub(super) fn section(look: &LookRecord) -> String {
    let mut page = format!("<h2>A close look: {}</h2>\n", escaped(&look.name));
    page.push_str(
        "<p class=\"note\">One run of the first guest beside the counted ones, with every decision about a pause loop \
         written down.</p>\n<h3>Who acted for whom: the spinner a row, the vCPU that it named a column</h3>\n",
    );
    page.push_str(&matrix(look));
    page.push_str("<h3>Where each vCPU&#8217;s time went, start and end included</h3>\n");
    page.push_str(&chart::ledger_legend());
    page.push_str(&chart::stacked("share of its time", &ledger(look)));
    page.push_str("<h3>Decisions in the middle of the run</h3>\n<ul class=\"legend\">\n");
    for (at, (deed, colour)) in Deed::ALL.iter().zip(COLOURS).enumerate() {
        let all: u64 = look.deeds.iter().map(|deeds| deeds[at]).sum();
        let _ =
            writeln!(page, "<li><i style=\"background:{colour}\"></i>{} ({all} in the whole run)</li>", deed.name());
    }
    page.push_str("</ul>\n<div class=\"wide\">\n");
    page.push_str(&timeline(look));
    page.push_str("</div>\n");
    page
}

/// A bar a vCPU.
#[expect(clippy::cast_precision_loss, reason = "a run of minutes is far below 2^53 ns")]
fn ledger(look: &LookRecord) -> Vec<(String, Vec<f64>)> {
    let bar = |(vcpu, ledger): (usize, &Ledger)| {
        let whole = ledger.terms().iter().map(|(_, ns)| ns).sum::<u64>().max(1) as f64;
        (format!("vCPU {vcpu}"), ledger.terms().map(|(_, ns)| ns as f64 / whole).to_vec())
    };
    look.ledger.iter().enumerate().map(bar).collect()
}

fn open(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"{label}\">\n"
    )
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Squares, the darker the more often; each says its count when pointed at.
#[expect(clippy::cast_precision_loss, reason = "counts of a run of seconds are far below 2^53")]
fn matrix(look: &LookRecord) -> String {
    const CELL: f64 = 26.0;
    let vcpus = look.given.len();
    let most = look.given.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    let side = number(vcpus) * CELL;
    let mut svg = open(LEFT + side + 8.0, TOP + side + 8.0, "who acted for whom");
    for (source, row) in look.given.iter().enumerate() {
        let y = TOP + number(source) * CELL;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">vCPU {source}</text>", y + 17.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{source}</text>",
            LEFT + number(source) * CELL + 8.0,
            TOP - 8.0
        );
        for (target, count) in row.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{1}\" height=\"{1}\" fill=\"#3b7dbd\" fill-opacity=\"{2:.3}\" \
                 stroke=\"#d8dde4\"><title>vCPU {source} for vCPU {target}: {count}</title></rect>",
                LEFT + number(target) * CELL,
                CELL - 2.0,
                *count as f64 / most
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line a vCPU, a tick a decision.
fn timeline(look: &LookRecord) -> String {
    const ROW: f64 = 24.0;
    let (Some(first), Some(last)) = (look.timeline.first(), look.timeline.last()) else {
        return "<p class=\"note\">There was no decision.</p>\n".to_owned();
    };
    let span = (last.at_us - first.at_us).max(1.0);
    let height = TOP + ROW * number(look.given.len()) + 8.0;
    let mut svg = open(WIDE, height, "decisions in time");
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"18\">{:.1} ms, from {:.1} ms after the first decision of the run</text>",
        span / 1e3,
        first.at_us / 1e3
    );
    for vcpu in 0..look.given.len() {
        let y = TOP + ROW * number(vcpu);
        let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">vCPU {vcpu}</text>", y + 4.0);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{:.0}\" stroke=\"#e6e9ee\"/>", WIDE - 8.0);
    }
    for decided in &look.timeline {
        let x = LEFT + (decided.at_us - first.at_us) / span * (WIDE - LEFT - 8.0);
        let place = Deed::ALL.iter().position(|deed| *deed == decided.deed).unwrap_or(0);
        let y = TOP + ROW * f64::from(decided.vcpu);
        let (above, below) = (y - 8.0, y + 8.0);
        let _ = writeln!(svg, "<path d=\"M{x:.2} {above:.1}V{below:.1}\" stroke=\"{}\"/>", COLOURS[place]);
    }
    svg.push_str("</svg>\n");
    svg
}
