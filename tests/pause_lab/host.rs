// SPDX-License-Identifier: Apache-2.0
//! One start of an emulated host that exits at every PAUSE, with the monitor on it.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::{Lab, LabError};
use libtest_mimic::Failed;
use serde_json::Value;

use crate::monitor;

/// Starts of the host before a test is given up: that it stops is the emulator's fault (docs/lab.md).
const STARTS: usize = 3;

/// What a script left in `/results`, by name.
#[derive(Debug)]
pub(crate) struct Files(BTreeMap<String, Vec<u8>>);

/// Runs a script on the host; `files` are there beside the monitor.
pub(crate) fn run(script: &str, files: &[(String, Vec<u8>)], limit: Duration) -> Result<Files, Failed> {
    run_on(Lab::new, script, files, limit)
}

/// The same where time is counted in instructions, so that figures can be compared.
pub(crate) fn run_counted(script: &str, files: &[(String, Vec<u8>)], limit: Duration) -> Result<Files, Failed> {
    run_on(|| Lab::new().counted_time(true), script, files, limit)
}

fn run_on<'a>(
    host: impl Fn() -> Lab<'a>,
    script: &str,
    files: &[(String, Vec<u8>)],
    limit: Duration,
) -> Result<Files, Failed> {
    for start in 1.. {
        let mut lab = host().pause_filter(true).program_at(monitor::path(), "/bin/vmm").deadline(limit);
        for (path, bytes) in files {
            lab = lab.file(path, bytes.clone());
        }
        match lab.run(script) {
            Err(failed @ LabError::LabHostFailed { .. }) if start < STARTS => {
                eprintln!("lab host {start} of {STARTS}: {failed}");
            }
            Ok(result) => return Ok(Files(result.files)),
            Err(failed) => return Err(failed.into()),
        }
    }
    Err("no start of the lab host was made".into())
}

impl Files {
    pub(crate) fn text(&self, name: &str) -> Result<String, Failed> {
        let bytes = self.0.get(name).ok_or_else(|| format!("the script left no {name}"))?;
        Ok(String::from_utf8_lossy(bytes).replace('\r', ""))
    }

    pub(crate) fn report(&self, name: &str) -> Result<Value, Failed> {
        serde_json::from_str(&self.text(name)?).map_err(|error| format!("{name}: {error}").into())
    }
}

/// The sum over the vCPUs of a number of a report's `vcpus[].pause`.
pub(crate) fn sum(report: &Value, pointer: &str) -> u64 {
    let vcpus = report["vcpus"].as_array().into_iter().flatten();
    vcpus.filter_map(|vcpu| vcpu["pause"].pointer(pointer)?.as_u64()).sum()
}
