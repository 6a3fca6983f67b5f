// SPDX-License-Identifier: Apache-2.0
//! One run in a child process: started, waited for with a deadline, its report read.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Arm, Cell, Sample};
use crate::report::Report;

/// What a run may take beyond its workload: start, end, and a host that is busy with other things.
const MARGIN: Duration = Duration::from_secs(30);
/// How often the end of a child is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A run that brought no number.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// It could not be started or waited for.
    #[error("{run}: cannot be run: {source}")]
    Start {
        /// Which run.
        run: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It did not end.
    #[error("{run}: not at its end after {waited:?}, and was killed")]
    Deadline {
        /// Which run.
        run: String,
        /// For how long was waited.
        waited: Duration,
    },
    /// It ended otherwise than by the guest's power-off, or without a result.
    #[error("{run}: ended with {how}: {told}")]
    Failed {
        /// Which run.
        run: String,
        /// Its exit status, or what its report lacks.
        how: String,
        /// What it said.
        told: String,
    },
}

/// Runs one arm of a cell.
pub(super) fn run(cell: &Cell, arm: Arm, milliseconds: u32) -> Result<Sample, ChildError> {
    let run = format!("{} {arm}", cell.name());
    let pin: Vec<String> = cell.cpus.iter().map(ToString::to_string).collect();
    let mut arguments: Vec<String> =
        ["--cpus", &cell.vcpus.to_string(), "--placement", &format!("pin=[{}]", pin.join(","))]
            .map(str::to_owned)
            .into();
    arguments.extend(arm.flags().iter().map(|flag| (*flag).to_owned()));
    arguments.push("--probe".to_owned());
    arguments.push(format!("{} seconds={} report=none", cell.workload, seconds(milliseconds)));
    let report = report_of(&run, &arguments, milliseconds)?;
    sample(&report).ok_or_else(|| ChildError::Failed {
        run,
        how: "no result of the workload".to_owned(),
        told: report.exit.reason.clone(),
    })
}

/// As the probe takes it.
pub(super) fn seconds(milliseconds: u32) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// Runs a small machine for `milliseconds` of its workload, and reads its report. `run` names it in errors.
pub(super) fn report_of(run: &str, arguments: &[String], milliseconds: u32) -> Result<Report, ChildError> {
    let start = |source| ChildError::Start { run: run.to_owned(), source };
    let report = ScratchFile::new("json");
    let command = std::env::current_exe().map_err(start)?;
    let mut child = Command::new(command)
        .args(["--memory", "64M", "--serial", "none"])
        .args(arguments)
        .arg("--report")
        .arg(&report.0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let begun = Instant::now();
    let limit = Duration::from_millis(milliseconds.into()) + MARGIN;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(start)? {
            break status;
        }
        if begun.elapsed() > limit {
            // It may have ended in this very moment; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ChildError::Deadline { run: run.to_owned(), waited: limit });
        }
        thread::sleep(LOOK_EVERY);
    };
    let failed = |how: String, told: String| ChildError::Failed { run: run.to_owned(), how, told };
    if !status.success() {
        let told = child.stderr.take().and_then(|stderr| io::read_to_string(stderr).ok()).unwrap_or_default();
        return Err(failed(status.to_string(), told));
    }
    let text = std::fs::read_to_string(&report.0).map_err(start)?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string(), text.clone()))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run of seconds are far below 2^53")]
fn sample(report: &Report) -> Option<Sample> {
    let workload = report.workload.as_ref()?;
    let pauses = || report.vcpus.iter().map(|vcpu| &vcpu.pause);
    let whole_s = workload.seconds * report.vcpus.len() as f64;
    Some(Sample {
        rate: workload.operations_per_s,
        yields_per_operation: workload.yields_per_handover.unwrap_or(0.0),
        events: pauses().map(|pause| pause.events).sum(),
        bailed: pauses().map(|pause| pause.quiet + pause.bailed.values().sum::<u64>()).sum(),
        spin_share: workload.spin_seconds.map(|spin| spin / whole_s),
        jain: workload.jain,
        wait_p99_ns: workload.wait_p99_ns,
    })
}

/// A name in the directory for temporary files; the file goes when this is dropped.
pub(super) struct ScratchFile(PathBuf);

impl ScratchFile {
    /// A name that ends in `.EXTENSION`.
    pub(super) fn new(extension: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("vmm-bench-{}-{number}.{extension}", std::process::id())))
    }

    /// The name.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // A run that failed wrote none.
        let _ = std::fs::remove_file(&self.0);
    }
}
