// SPDX-License-Identifier: Apache-2.0
//! The worst that the search for adversaries found (`vmm sim attack`), and how much acting may lose there.
//!
//! `resources/scenarios/adversaries` are those that the policy was mended for; in `adversaries/open` acting still loses more, as
//! docs/simulator.md says.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]
#![expect(clippy::disallowed_methods, reason = "its scenarios are files")]

use std::fs;
use std::path::{Path, PathBuf};

use sim::adversary::loss;
use sim::scenario::Scenario;

/// Loss over the corpus that is allowed at most, in per cent of what the kernel alone brings.
const MOST: f64 = 5.0;
/// Seeds of each scenario.
const RUNS: usize = 4;

fn corpus(directory: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("../../resources/scenarios/{directory}")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    assert!(!files.is_empty(), "{directory} is empty");
    files
}

/// What acting loses in a scenario, in per cent.
fn lost(path: &Path) -> f64 {
    let scenario = Scenario::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let report = scenario.run(&scenario.host(None).unwrap(), 1, RUNS).unwrap();
    loss(&report).unwrap()
}

#[test]
fn acting_loses_less_than_five_per_cent_over_the_corpus() {
    let lost: Vec<(PathBuf, f64)> = corpus("adversaries").into_iter().map(|path| (path.clone(), lost(&path))).collect();
    let too_much: Vec<_> = lost.iter().filter(|(_, percent)| *percent >= MOST).collect();
    assert!(too_much.is_empty(), "{too_much:#?}");
}

#[test]
fn what_is_open_can_be_measured() {
    for path in corpus("adversaries/open") {
        assert!(lost(&path).is_finite(), "{}", path.display());
    }
}
