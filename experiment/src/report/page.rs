// SPDX-License-Identifier: Apache-2.0
//! The analysis as one page for a browser: no scripts, nothing from elsewhere.

use std::fmt::Write;

use super::chart::{self, escaped};
use super::overview::{self, Standing};
use super::table::{self, BESIDE, THROUGHPUT};
use super::{look, number, scaling};
use crate::analysis::Analysis;
use crate::look::LookRecord;

const STYLE: &str = "
body{font:15px/1.5 system-ui,sans-serif;color:#1d2530;background:#fff;max-width:1440px;margin:2rem auto;padding:0 1.5rem}
h1{font-size:1.7rem;margin-bottom:.2rem}h2{margin-top:2.5rem;border-bottom:1px solid #d8dde4;padding-bottom:.2rem}
h3{margin:1.4rem 0 .4rem;font-size:1rem;color:#4a5563}ul.facts{color:#4a5563;padding-left:1.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86rem;margin:.5rem 0}
th,td{padding:.25rem .6rem;text-align:right;white-space:nowrap}th{white-space:normal;vertical-align:bottom;color:#4a5563;
border-bottom:2px solid #d8dde4;font-weight:600}td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}
tr.first td{border-top:1px solid #d8dde4}td.more{color:#1f7a3d;font-weight:600}td.less{color:#b3261e;font-weight:600}
div.wide{overflow-x:auto}div.charts{display:flex;flex-wrap:wrap;gap:1rem 2rem}
svg{font:13px system-ui,sans-serif;fill:#1d2530}svg .head{font-weight:600}svg .dim{fill:#8a94a3}svg .bar{fill-opacity:.4}
svg .run{fill:#1f4e79;fill-opacity:.55}svg .far{fill:#fff;stroke:#b3261e;stroke-width:1.5}
svg .error{stroke:#1d2530;stroke-width:1.4;fill:none}
ul.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;font-size:.9rem}
ul.legend i{display:inline-block;width:.9em;height:.9em;margin-right:.4em;border-radius:2px}
table.glance{font-size:.95rem}table.glance td{padding:.3rem .8rem;min-width:4.5rem}div.glance{display:flex;flex-wrap:wrap;
gap:1rem 2rem}div.lines{max-width:620px}div.lines div.charts{gap:.3rem .6rem}
p.warning{border-left:4px solid #d1495b;padding:.2rem .8rem;background:#fbeef0}
table.glance td:nth-child(-n+2){min-width:0}
td.best{color:#1f7a3d;font-weight:700}
p.note{color:#4a5563;max-width:75em}
";

/// The page, with the close look at one run if there is one.
#[must_use]
pub fn html(analysis: &Analysis, close: Option<&LookRecord>) -> String {
    let title = escaped(&analysis.run.plan);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>{}</p>\n",
        escaped(&analysis.description)
    );
    glance(&mut page, analysis);
    page.push_str("<h2>How it was measured</h2>\n");
    list(&mut page, "facts", table::facts(analysis));
    let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(&table::legend(analysis)));
    for workload in table::workloads(analysis) {
        section(&mut page, analysis, workload);
    }
    if let Some(close) = close {
        page.push_str(&look::section(close));
    }
    let outliers = table::outliers(analysis);
    if !outliers.is_empty() {
        page.push_str("<h2>Far from the others, and counted all the same</h2>\n");
        list(&mut page, "facts", outliers);
    }
    if !analysis.failures.is_empty() {
        page.push_str("<h2>Without a number</h2>\n");
        list(&mut page, "facts", analysis.failures.iter().map(|failure| format!("{}: {}", failure.cell, failure.why)));
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Every workload and ratio in a table of shares of the best arm, the darker the more is lost, and a sentence an arm.
fn glance(page: &mut String, analysis: &Analysis) {
    if let Some(warning) = table::not_quiet(analysis) {
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escaped(&warning));
    }
    page.push_str("<div class=\"glance\">\n");
    standings(page, analysis);
    scaling_lines(page, analysis);
    page.push_str("</div>\n");
    list(page, "arms", overview::sentences(analysis));
    let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(overview::LEGEND));
}

fn standings(page: &mut String, analysis: &Analysis) {
    page.push_str("<div class=\"wide\"><table class=\"glance\">\n<tr>");
    let heads = ["workload", "ratio (guests of vCPUs)"];
    heads.into_iter().chain(overview::arms(analysis)).for_each(|head| {
        let _ = write!(page, "<th>{}</th>", escaped(head));
    });
    page.push_str("</tr>\n");
    let mut before = "";
    for group in &analysis.groups {
        let first = if before == group.workload { "" } else { " class=\"first\"" };
        before = &group.workload;
        let _ = write!(page, "<tr{first}><td>{}</td><td>{}</td>", escaped(before), escaped(&table::load(group)));
        for row in &group.rows {
            let standing = Standing::of(group, row);
            let class = if standing == Standing::Best { " class=\"best\"" } else { "" };
            let (shade, said) = (standing.shade(), escaped(&standing.text()));
            let mean = number::optional(row.throughput.map(|summary| summary.mean), number::rate);
            let _ = write!(
                page,
                "<td{class} style=\"background:rgba(209,73,91,{shade:.2})\" title=\"{mean} operations/s\">{said}</td>"
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// A picture a workload with a line an arm, if there is more than one ratio.
fn scaling_lines(page: &mut String, analysis: &Analysis) {
    let workloads = table::workloads(analysis);
    if workloads.iter().all(|workload| table::groups(analysis, workload).len() < 2) {
        return;
    }
    page.push_str(
        "<div class=\"lines\">\n<h3>Operations a second by ratio, logarithmic: average and its 95 % interval</h3>\n<ul \
         class=\"legend\">\n",
    );
    for (at, arm) in overview::arms(analysis).iter().enumerate() {
        let _ = writeln!(page, "<li><i style=\"background:{}\"></i>{}</li>", scaling::colour(at), escaped(arm));
    }
    page.push_str("</ul>\n<div class=\"charts\">\n");
    workloads.iter().for_each(|workload| page.push_str(&scaling::lines(workload, &table::groups(analysis, workload))));
    page.push_str("</div>\n</div>\n");
}

fn list(page: &mut String, class: &str, lines: impl IntoIterator<Item = String>) {
    let _ = writeln!(page, "<ul class=\"{class}\">");
    for line in lines {
        let _ = writeln!(page, "<li>{}</li>", escaped(&line));
    }
    page.push_str("</ul>\n");
}

fn section(page: &mut String, analysis: &Analysis, workload: &str) {
    let _ = writeln!(page, "<h2>{}</h2>", escaped(workload));
    let groups = table::groups(analysis, workload);
    page.push_str(
        "<h3>Operations a second of all guests: average, its 95 % interval, every run</h3>\n<div class=\"charts\">\n",
    );
    groups.iter().for_each(|group| page.push_str(&chart::throughput(group, &table::load(group))));
    page.push_str("</div>\n");
    let rows = || table::rows(analysis, workload);
    let throughput = rows().map(|(group, row)| {
        let verdict = number::verdict(row, &analysis.baseline);
        (row.arm == group.rows[0].arm, verdict, table::throughput_cells(analysis, group, row))
    });
    grid(page, &THROUGHPUT, throughput);
    page.push_str("<h3>Beside the throughput</h3>\n");
    let beside = rows().map(|(group, row)| (row.arm == group.rows[0].arm, "", table::beside_cells(group, row)));
    grid(page, &BESIDE, beside);
    let _ =
        write!(page, "<h3>Where the vCPUs&#8217; time went</h3>\n{}<div class=\"charts\">\n", chart::ledger_legend());
    groups.iter().for_each(|group| page.push_str(&chart::ledger(group, &table::load(group))));
    page.push_str("</div>\n");
}

/// A table; of each row whether it begins a ratio, the class of its last cell, and its cells.
fn grid(page: &mut String, heads: &[&str], rows: impl Iterator<Item = (bool, &'static str, Vec<String>)>) {
    page.push_str("<div class=\"wide\"><table>\n<tr>");
    heads.iter().for_each(|head| page.push_str(&format!("<th>{head}</th>")));
    page.push_str("</tr>\n");
    for (first, class, cells) in rows {
        let _ = write!(page, "<tr{}>", if first { " class=\"first\"" } else { "" });
        let last = cells.len().saturating_sub(1);
        for (at, cell) in cells.iter().enumerate() {
            let class = if at == last && !class.is_empty() { format!(" class=\"{class}\"") } else { String::new() };
            let _ = write!(page, "<td{class}>{}</td>", escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}
