// SPDX-License-Identifier: Apache-2.0
//! Our statistics against those of SciPy and statsmodels as they are installed, on samples that no file of ours holds.
//!
//! `PYTHON=PATH` names a Python that has both. Invariant: a machine without them reports the test as ignored, and says what
//! is missing; the test `golden` has their known answers on every machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../golden/judge.rs"]
mod judge;

use std::env;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Trial};

use judge::Golden;

fn main() -> ExitCode {
    let name = "statistics_of_new_samples_are_those_of_scipy";
    let trial = Trial::ignorable_test(name, || match missing() {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => {
            // Known seeds: a failure can be seen again.
            [1, 2].into_iter().for_each(judge);
            Ok(Completion::Completed)
        }
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn python() -> Command {
    Command::new(env::var_os("PYTHON").unwrap_or_else(|| "python3".into()))
}

fn missing() -> Option<String> {
    match python().args(["-c", "import scipy, statsmodels"]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.trim().lines().next_back().unwrap_or("it says nothing").to_owned();
            Some(format!(
                "no SciPy and statsmodels: {last}; install them, or name a Python that has them by PYTHON=PATH"
            ))
        }
        Err(error) => Some(format!("no Python: {error}")),
    }
}

fn judge(seed: u64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/golden.py");
    let output = python().arg(script).arg(seed.to_string()).output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    let theirs: Golden = serde_json::from_slice(&output.stdout).unwrap();
    theirs.judge_summaries();
    theirs.judge_bootstrap();
    theirs.judge_pairs();
    theirs.judge_independent();
    theirs.judge_corrections();
}
