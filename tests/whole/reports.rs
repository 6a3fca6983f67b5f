// SPDX-License-Identifier: Apache-2.0
//! `--report FILE`: every run that began leaves one document, and the published schema accepts it.

use std::fs;

use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;

use crate::monitor::{Ended, Monitor};
use crate::{kvm, trial};

const SCHEMA: &str = include_str!("../../docs/report.schema.json");

/// One test for each way to end that has something to tell.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("report_of_a_run_with_a_workload", kvm, with_workload),
        trial("report_of_a_reset_a_crash_and_a_panic", kvm, guests_ends),
        trial("report_of_a_run_that_was_stopped", kvm, stopped),
        trial("report_replaces_an_old_one_in_one_step", kvm, replaced),
    ]
}

/// The document a run left under `run.json`, if the schema accepts it.
#[track_caller]
fn document(ended: &Ended) -> Value {
    let text = fs::read_to_string(ended.directory.path().join("run.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> =
        validator.iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(faults.is_empty(), "{faults:?}\n{text}");
    assert_eq!(ended.files(), ["run.json"]);
    report
}

fn with_workload() {
    let arguments = ["--cpus=6", "--numa=2", "--memory=256M", "--report=run.json", "--probe", "spin seconds=0.5"];
    let ended = Monitor::new(arguments).run().expect(0);
    let report = document(&ended);
    assert_eq!(report["exit"]["status"], 0);
    assert_eq!(report["guest"]["memory_bytes"], 256 << 20);
    assert_eq!(report["guest"]["seen"], serde_json::json!({ "cpus": 6, "nodes": 2 }));
    assert_eq!(report["workload"]["name"], "spin");
    assert!(report["workload"]["operations"].as_u64().unwrap() > 0);
    assert!(report["workload"]["seconds"].as_f64().unwrap() >= 0.5);
    let (first, last) = (&report["start"]["first_instruction_us"], &report["start"]["last_ap_us"]);
    assert!(first.as_u64().unwrap() > 0 && first.as_u64() < last.as_u64(), "{}", report["start"]);
    let vcpus = report["vcpus"].as_array().unwrap();
    let tids: std::collections::BTreeSet<_> = vcpus.iter().map(|vcpu| vcpu["tid"].as_u64()).collect();
    assert_eq!((vcpus.len(), tids.len()), (6, 6));
    // The first vCPU prints, so it writes to ports.
    assert!(vcpus[0]["exits"]["port_write"].as_u64().unwrap() > 100, "{}", vcpus[0]);
    assert!(report["monitor"]["pss_bytes"].as_u64().unwrap() > 100 << 10);
}

fn guests_ends() {
    for (workload, status) in [("reset", 32), ("triple-fault", 33), ("panic", 34)] {
        let monitor = Monitor::new(["--report=run.json", "--probe", &format!("{workload} report=none")]);
        let report = document(&monitor.run().expect(status));
        assert_eq!(report["exit"]["status"], status, "{workload}");
    }
}

fn stopped() {
    let started = Monitor::new(["--cpus=3", "--report=run.json", "--probe", "spin seconds=300"]).start();
    started.wait_for_vcpus(3);
    started.signal(Signal::INT);
    let report = document(&started.wait().expect(0));
    assert_eq!(report["exit"]["reason"], "stopped by the operator");
    assert_eq!(report.get("workload"), None);
}

fn replaced() {
    let monitor = Monitor::new(["--report=run.json", "--probe", "report report=none"]);
    fs::write(monitor.directory().join("run.json"), "an old one").unwrap();
    document(&monitor.run().expect(0));
}
