// SPDX-License-Identifier: Apache-2.0
//! The cells of the pause-loop table that were measured natively: the model has their order and, within a factor of two, their
//! rates. The arms are those that ask no policy, so that a change of the policy changes nothing here.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]
#![expect(clippy::disallowed_methods, reason = "its scenarios are files")]

use std::fs;

use sim::scenario::Scenario;

/// CPUs, vCPUs, and hand-overs a second of a ring under no mechanism, `yield` and `park` (docs/pause-loops.md, "Measured").
const MEASURED: [(usize, usize, [f64; 3]); 7] = [
    (1, 2, [298.0, 13_560.0, 12_846.0]),
    (1, 4, [136.0, 6_924.0, 12_583.0]),
    (1, 8, [61.0, 4_574.0, 12_868.0]),
    (1, 16, [31.0, 2_283.0, 12_856.0]),
    (2, 4, [408.0, 15_519.0, 7_636.0]),
    (2, 8, [144.0, 7_144.0, 10_124.0]),
    (2, 16, [60.0, 3_609.0, 9_712.0]),
];

/// Hand-overs a second of the first three arms, the mean of `runs` seeds.
fn simulated(cpus: usize, vcpus: usize, runs: usize) -> [f64; 3] {
    let path = format!("../../resources/scenarios/calibration-{cpus}-cpu-{vcpus}-vcpus.toml");
    let scenario = Scenario::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let report = scenario.run(&scenario.host(None).unwrap(), 1, runs).unwrap();
    [0, 1, 2].map(|arm| {
        let cell = report.rows[arm].cells.iter().find(|cell| cell.name == "handovers_per_s");
        cell.unwrap().measure.mean
    })
}

/// Arms from least to most.
fn order(rates: [f64; 3]) -> Vec<usize> {
    let mut arms = vec![0, 1, 2];
    arms.sort_by(|&a, &b| rates[a].total_cmp(&rates[b]));
    arms
}

#[test]
fn every_cell_has_the_order_that_was_measured_and_rates_within_a_factor_of_two() {
    for (cpus, vcpus, measured) in MEASURED {
        let simulated = simulated(cpus, vcpus, 2);
        assert_eq!(order(simulated), order(measured), "{vcpus} on {cpus}: {simulated:?} {measured:?}");
        for (simulated, measured) in simulated.into_iter().zip(measured) {
            let factor = simulated / measured;
            assert!((0.5..=2.0).contains(&factor), "{vcpus} on {cpus}: {simulated} {measured}");
        }
    }
}
