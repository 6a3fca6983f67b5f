// SPDX-License-Identifier: Apache-2.0
//! Reports of made-up runs: what is in them, and what must never be.

use super::*;
use crate::analysis::Analysis;
use crate::directory::RunInfo;
use crate::host::HostState;
use crate::look::{Decided, Deed, LookRecord};
use crate::plan::Plan;
use crate::sample::{CellRecord, GuestSample, Ledger, Outcome, VcpuSample};
use crate::schedule::{name, schedule};
use crate::stats::{Method, Verdict};

const PLAN: &str = "name = \"made-up\"\ndescription = \"a < b & c\"\nrepetitions = 6\nwarm_up = 1\nwindow_ms = 100\n\
                    overcommit = [1, 2]\nworkloads = [\"ring\"]\narms = [\"off\", \"act\", \"park\"]\n[guests]\ncount = 2\n";

/// `act` is twice `off`, `park` the same; one run of `off` is far off, one cell failed.
fn made_up(factor: f64) -> (Analysis, Vec<CellRecord>) {
    let plan = Plan::parse(PLAN, &"0-1".parse().unwrap()).unwrap();
    let cells = schedule(&plan);
    let mut records: Vec<CellRecord> = cells
        .iter()
        .map(|cell| {
            let noise = [1.0, 1.01, 1.02, 1.03, 1.04][(cell.repetition as usize * 7 + cell.number) % 5];
            let rate = factor * noise * 100.0 * if cell.arm == 1 { 2.0 } else { 1.0 };
            let ledger_ns = Ledger { guest: 60, waiting: 40, ..Ledger::default() };
            let vcpus = vec![VcpuSample { ledger_ns, attempted: 3, boosted: 2, ..VcpuSample::default() }];
            let operations_per_s = if cell.is_warm_up { 1e9 } else { rate };
            let guest = GuestSample { operations: 10, seconds: 0.1, operations_per_s, vcpus, ..GuestSample::default() };
            let outcome = Outcome::Measured(vec![guest.clone(), guest]);
            let name = name(&plan, cell);
            let (load_before, others_share) = (Some(0.25), Some(if cell.number == 7 { 0.5 } else { 0.0 }));
            CellRecord { cell: *cell, name, began_unix_s: 0, took_ms: 150, load_before, others_share, outcome }
        })
        .collect();
    let of = |load, arm, repetition: u32| {
        cells.iter().position(|c| !c.is_warm_up && (c.load, c.arm, c.repetition) == (load, arm, repetition)).unwrap()
    };
    let far = of(0, 0, 3);
    if let Outcome::Measured(samples) = &mut records[far].outcome {
        samples[0].operations_per_s *= 3.0;
    }
    records[of(1, 2, 0)].outcome = Outcome::Failed("guest 1 <died>, \"badly\"".to_owned());
    let info = RunInfo::new(&plan, &"0-1".parse().unwrap(), "0.1.0", HostState::default());
    (Analysis::new(&plan, &info, &records, cells.len()), records)
}

#[test]
fn an_analysis_counts_what_was_measured_and_nothing_else() {
    let (analysis, records) = made_up(1.0);
    assert_eq!((analysis.comparisons, analysis.done, analysis.cells), (4, records.len(), 42));
    let rows = &analysis.groups[1].rows;
    assert_eq!(rows.iter().map(|row| row.values.len()).collect::<Vec<_>>(), [6, 6, 5], "warm-ups are not counted");
    let act = rows[1].comparison.unwrap();
    assert_eq!((act.verdict, act.difference.method), (Verdict::More, Method::Paired));
    assert!((act.difference.ratio - 2.0).abs() < 0.05 && (95.0..105.0).contains(&rows[1].change_percent.unwrap()));
    assert_eq!(rows[2].comparison.unwrap().verdict, Verdict::NoDifferenceShown);
    assert!(rows[0].comparison.is_none());
    assert!(act.p_corrected >= act.difference.p);
    let far: Vec<u32> = analysis.groups[0].rows[0]
        .values
        .iter()
        .filter(|value| value.is_outlier)
        .map(|value| value.repetition)
        .collect();
    assert_eq!(far, [3], "it is named and counted");
    assert_eq!(analysis.groups[0].rows[0].throughput.unwrap().n, 6);
    let details = &rows[0].details;
    assert!((details.ledger.values().sum::<f64>() - 1.0).abs() < 1e-12);
    assert!((details.steal_share.unwrap() - 0.4).abs() < 1e-12 && (details.guests_jain.unwrap() - 1.0).abs() < 1e-9);
    assert!((details.boosted_share.unwrap() - 2.0 / 3.0).abs() < 1e-9);
}

#[test]
fn an_analysis_of_nothing_says_nothing() {
    let plan = Plan::parse(PLAN, &"0-1".parse().unwrap()).unwrap();
    let info = RunInfo::new(&plan, &"0-1".parse().unwrap(), "0.1.0", HostState::default());
    let analysis = Analysis::new(&plan, &info, &[], 42);
    assert_eq!(analysis.comparisons, 0);
    let text = markdown(&analysis);
    assert!(text.contains("not complete: 0 of 42 cells") && text.contains("cannot be compared"), "{text}");
    assert!(html(&analysis, None).contains("no number"));
}

#[test]
fn an_arm_loses_only_where_that_is_shown() {
    let (analysis, mut records) = made_up(1.0);
    let best: Vec<_> = analysis.groups.iter().map(|group| group.best.as_deref()).collect();
    assert_eq!(best, [Some("act"); 2]);
    assert!(analysis.groups[0].rows[1].to_best.is_none());
    let off = analysis.groups[1].rows[0].to_best.unwrap();
    assert!(
        (off.difference.ratio - 0.5).abs() < 0.02
            && off.verdict == Verdict::Less
            && off.p_corrected >= off.difference.p
    );
    let text = markdown(&analysis);
    for part in [
        "| ring | 2x (2 of 2) | 0.50 less | best | 0.51 less |",
        "- act: best in 2 of 2, not shown to be less than the best in 0 more\n",
        "- park: best in 0 of 2, not shown to be less than the best in 0 more; loses in 2: ring 1x (0.5",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // What brought nothing in one run is not the best, whatever it brought in the others.
    for record in records.iter_mut().filter(|record| record.cell.arm == 1 && record.cell.repetition == 2) {
        let Outcome::Measured(samples) = &mut record.outcome else { continue };
        samples.iter_mut().for_each(|guest| guest.operations_per_s = 0.0);
    }
    let plan = Plan::parse(PLAN, &"0-1".parse().unwrap()).unwrap();
    let analysis = Analysis::new(&plan, &analysis.run, &records, records.len());
    assert_ne!(analysis.groups[0].best.as_deref(), Some("act"));
    assert!(markdown(&analysis).contains("loses in 2: ring 1x (nothing in a run)"), "{}", markdown(&analysis));
}

#[test]
fn the_table_is_that_of_the_lists() {
    let text = markdown(&made_up(1.0).0);
    for part in [
        "# made-up",
        "| 2x (2 of 2) | act | 6 |",
        "no difference shown",
        "<0.001, more",
        "- ring 1x off #4: 4",
        "- ring 2x park #1: guest 1 <died>",
        "corrected for 4 comparisons",
        "others took 1.2 % of the host CPUs' time while cells ran, 50.0 % at most (",
        "6 runs of 100 ms each after 1 that are not counted",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_page_needs_nothing_but_itself_and_text_stays_text() {
    let decided = |at: u32| Decided { at_us: f64::from(at), vcpu: at % 2, deed: Deed::Yield, target: Some(1 - at % 2) };
    let close = LookRecord::of(
        "ring <2x>",
        vec![Ledger { guest: 3, halted: 1, ..Ledger::default() }; 2],
        &(0..50).map(decided).collect::<Vec<_>>(),
    );
    let page = html(&made_up(1.0).0, Some(&close));
    assert!(page.contains("ring &lt;2x&gt;") && page.contains("vCPU 0 for vCPU 1: 25"));
    assert!(page.contains("halted 25.0 %"), "its ledger");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("a &lt; b &amp; c") && page.contains("&lt;died&gt;") && !page.contains("<died>"));
    for foreign in ["<script", "<link", "src=", "href=", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<svg").count(), 8);
    assert!(page.contains("act 2x: ") && page.contains("ring by ratio"), "lines over the ratios");
    assert_eq!(page.matches("class=\"far\"").count(), 1);
    for tag in ["table", "svg", "div", "ul", "tr", "td"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn every_row_of_a_spreadsheet_has_every_column() {
    let (analysis, records) = made_up(1.0);
    let summary = csv(&analysis);
    assert_eq!(summary.lines().count(), 7);
    let columns = summary.lines().next().unwrap().split(',').count();
    assert!(summary.lines().all(|line| line.split(',').count() == columns), "{summary}");
    let raw = samples_csv(&records);
    assert_eq!(raw.lines().count(), 1 + 41 * 2 + 1);
    assert!(raw.contains("\"guest 1 <died>, \"\"badly\"\"\""));
    let columns = raw.lines().next().unwrap().split(',').count();
    assert!(raw.lines().filter(|line| !line.contains('"')).all(|line| line.split(',').count() == columns));
}

#[test]
fn two_runs_are_compared_with_a_warning_where_hosts_differ() {
    let (base, mut other) = (made_up(1.0).0, made_up(1.5).0);
    let text = side_by_side(&base, &other);
    assert!(!text.contains("warning"), "{text}");
    assert!(text.contains("more") && text.lines().filter(|line| line.starts_with("| ring")).count() == 6, "{text}");
    assert!(!side_by_side(&base, &base).contains("more"));
    other.run.host.kernel = Some("9.9".to_owned());
    other.run.program = Some("0123".to_owned());
    other.arms.get_mut("act").unwrap().halt_poll = Some(0);
    other.groups.pop();
    let text = side_by_side(&base, &other);
    assert!(text.contains("the hosts differ: kernel: unknown and 9.9"), "{text}");
    assert!(text.contains("the programs differ: build of vmm: unknown and 0123"), "{text}");
    assert!(text.contains("the runs differ: arm act: {pause:act} and {pause:act,halt_poll:0}"), "{text}");
    assert!(text.contains("3 arms are in both, of 6 and 3"), "{text}");
}
