// SPDX-License-Identifier: Apache-2.0
//! Sweeps: which points there are, which win, and what is refused.

use super::*;

const RING: &str = r#"title = "a ring"
duration = "20ms"
host = { cores = 1 }
[[arm]]
name = "off"
[[arm]]
name = "act"
source = "port"
after = "10us"
action = "policy"
[[vm]]
name = "a"
vcpus = 3
locks = { l = "ring" }
steps = [{ lock = "l" }]
"#;

fn axis(key: &str, values: &[&str]) -> Axis {
    Axis { key: key.into(), values: values.iter().map(|&value| value.to_owned()).collect() }
}

fn subject(text: &str) -> Subject {
    Subject { name: "ring".into(), text: text.into(), captured: None }
}

fn all(sweep: &Sweep) -> SweepReport {
    let outcomes: Vec<Outcome> = (0..sweep.jobs()).map(|job| sweep.run(job).unwrap()).collect();
    sweep.report(&outcomes)
}

#[test]
fn every_combination_meets_every_case_and_the_best_comes_first() {
    let plan = Plan {
        axes: vec![axis("arm.after", &["10us", "2ms"]), axis("arm.pause.bail_after", &["1", "3"])],
        conditions: vec![axis("vm.0.vcpus", &["2", "4"])],
        seed: 1,
        runs: 2,
        arm: None,
    };
    let sweep = Sweep::new(&[subject(RING)], &plan).unwrap();
    assert_eq!(sweep.jobs(), (1 + 4) * 2 * 2);
    let report = all(&sweep);
    assert_eq!(report.cases, ["ring vm.0.vcpus=2", "ring vm.0.vcpus=4"]);
    let unchanged = report.rows.iter().find(|row| row.settings.is_empty()).unwrap();
    assert!((unchanged.throughput_percent - 100.0).abs() < 1e-6, "{unchanged:?}");
    // Who reports after 2 ms helps two hundred times later.
    let last = report.rows.last().unwrap();
    assert!(last.settings[0] == "arm.after=2ms" && last.throughput_percent < 20.0, "{last:?}");
    assert!(report.rows[0].front && !last.front || last.fairness > report.rows[0].fairness);
    assert_eq!(report, all(&sweep));
    assert!(report.table().contains("arm.after=2ms"));
    assert!(report.chart().contains("as in the file") && report.chart().ends_with("</svg>\n"));
}

#[test]
fn without_axes_each_parameter_is_varied_alone() {
    let plan = Plan { runs: 1, ..Plan::default() };
    let sweep = Sweep::new(&[subject(RING)], &plan).unwrap();
    assert!(sweep.points.len() > 25 && sweep.points.iter().all(|point| point.len() <= 1));
    let keys: std::collections::BTreeSet<&str> = sweep.points.iter().flatten().map(|(key, _)| key.as_str()).collect();
    for key in
        ["arm.after", "arm.locality", "arm.pause.bail_after", "arm.pause.backoff_base_ns", "arm.pause.park_named_ns"]
    {
        assert!(keys.contains(key), "{key}");
    }
}

#[test]
fn what_is_wrong_is_refused_before_anything_runs() {
    let refused = |subjects: &[Subject], plan: Plan| match Sweep::new(subjects, &plan) {
        Ok(_) => unreachable!("it is wrong"),
        Err(error) => error.to_string(),
    };
    let plan = |axes: Vec<Axis>| Plan { axes, runs: 1, ..Plan::default() };
    assert!(refused(&[], plan(vec![])).contains("no scenario"));
    let arm = Plan { arm: Some("fast".into()), ..plan(vec![]) };
    assert!(refused(&[subject(RING)], arm).contains("ring has no arm `fast`"));
    let range = plan(vec![axis("arm.pause.bail_after", &["3", "65"])]);
    assert!(refused(&[subject(RING)], range).contains("outside 1 to 64"));
    let key = plan(vec![axis("arm.pause.bail", &["3"])]);
    assert!(refused(&[subject(RING)], key).contains("unknown field `bail`"));
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let many = plan(vec![axis("arm.every", &many), axis("vm.0.vcpus", &many)]);
    assert!(refused(&[subject(RING)], many).contains("10201 combinations"));
}
