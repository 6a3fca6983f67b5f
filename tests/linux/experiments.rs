// SPDX-License-Identifier: Apache-2.0
//! A whole experiment in the lab: every tool of the Linux guest runs once, on two vCPUs that share a CPU whose PAUSE exits are
//! real, and brings a number.

use std::fs;
use std::process::Command;

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use crate::{Set, monitor, none_of, trial};

const TOOLS: [&str; 6] = ["ebizzy", "dbench", "sysbench", "stress-ng", "hackbench", "kernbuild"];

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("an_experiment_runs_in_the_lab_and_every_tool_brings_a_number", Set::Full, every_tool)]
}

fn every_tool() -> Result<Completion, Failed> {
    let directory = tempfile::tempdir()?;
    let (plan, run) = (directory.path().join("plan.toml"), directory.path().join("run"));
    let names = TOOLS.map(|tool| format!("\"{tool}\"")).join(", ");
    fs::write(
        &plan,
        format!(
            "name = \"tools\"\non = \"lab\"\nrepetitions = 1\nwindow_ms = 2000\novercommit = [2]\nworkloads = [{names}]\n\
             arms = [\"act\"]\n[guests]\nsystem = \"linux\"\ncount = 1\n"
        ),
    )?;
    let mut command = Command::new(monitor::path());
    command.args(["experiment", "run"]).arg(&plan).arg("--out").arg(&run);
    let output = command.env("VMM_CLAIMS_DIR", directory.path().join("claims")).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("it ended with {}:\n{told}", output.status).into());
    }
    let mut problems = Vec::new();
    for number in 0..TOOLS.len() {
        let cell: Value = serde_json::from_str(&fs::read_to_string(run.join(format!("cells/{number:05}.json")))?)?;
        let guest = &cell["outcome"]["measured"][0];
        let rate = guest["operations_per_s"].as_f64().unwrap_or_default();
        let seen = guest["seen_inside"]["user_ms"].as_u64();
        if rate <= 0.0 || seen.is_none() || guest["vcpus"].as_array().map(Vec::len) != Some(2) {
            problems.push(format!("{}: {}", cell["name"], cell["outcome"]));
        }
    }
    let report = fs::read_to_string(run.join("report.md"))?;
    for tool in TOOLS.iter().filter(|tool| !report.contains(&format!("## {tool}")) && !report.contains(*tool)) {
        problems.push(format!("{tool} is not in the report"));
    }
    let info: Value = serde_json::from_str(&fs::read_to_string(run.join("run.json"))?)?;
    if info["host"]["kvm"] != "svm" {
        problems.push(format!("the host of the run is {}", info["host"]));
    }
    none_of("an experiment in the lab", &problems)?;
    Ok(Completion::Completed)
}
