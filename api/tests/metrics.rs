// SPDX-License-Identifier: Apache-2.0
//! Metrics: every family is documented, both formats say the same, and counters only grow.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use support::Bench;

fn text(bench: &Bench, accept: &str) -> String {
    let answer = bench.client().send("GET", "/metrics", &[("accept", accept)], None).unwrap();
    assert_eq!(answer.head.status, 200);
    String::from_utf8(answer.body).unwrap()
}

/// Names of the families with their types, as Prometheus's older text spells them.
fn families(text: &str) -> BTreeMap<String, String> {
    let of = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    text.lines().filter_map(of).collect()
}

/// Values by series.
fn series(text: &str) -> BTreeMap<String, f64> {
    let of = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(of).collect()
}

#[test]
fn every_family_is_documented_and_nothing_else_is() {
    let told = families(&text(&Bench::running(), "text/plain"));
    let documented: BTreeSet<(String, String)> = include_str!("../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `vmm_"))
        .map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
            (format!("vmm_{}", cells.next().unwrap()), cells.next().unwrap().to_owned())
        })
        .collect();
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), documented);
}

#[test]
fn both_formats_have_the_same_series() {
    let bench = Bench::running();
    let open = text(&bench, "application/openmetrics-text; version=1.0.0");
    assert!(open.ends_with("# EOF\n"));
    // What the API itself counts grows with every request.
    let names =
        |text: &str| series(text).into_keys().filter(|name| !name.starts_with("vmm_api")).collect::<BTreeSet<_>>();
    assert_eq!(names(&open), names(&text(&bench, "text/plain")));
}

#[test]
fn counters_only_grow() {
    let bench = Bench::running();
    let before = text(&bench, "text/plain");
    bench.monitor.advance(1_000_000_000);
    let after = text(&bench, "text/plain");
    let counters: Vec<String> =
        families(&before).into_iter().filter(|(_, kind)| kind == "counter").map(|(name, _)| name).collect();
    let (before, after) = (series(&before), series(&after));
    let mut grown = 0;
    for (name, value) in &before {
        if counters.iter().any(|counter| name.split('{').next() == Some(counter)) {
            assert!(after[name] >= *value, "{name}: {value} → {}", after[name]);
            grown += usize::from(after[name] > *value);
        }
    }
    assert!(grown > 10, "only {grown} counters grew in a second");
}
