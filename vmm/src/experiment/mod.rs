// SPDX-License-Identifier: Apache-2.0
//! `vmm experiment`: plans, schedules and statistics are those of the room `experiment`; here guests are started.
//!
//! Each guest is a child process of this same program with `--config` and `--report`. Invariant: one experiment at a time on
//! a host, and whatever ends it leaves no guest behind.

mod cell;
mod guest;
mod image;
mod in_lab;
mod look;
mod machine;
mod run;
mod sample;

use std::io;
use std::path::{Path, PathBuf};

use ::guest::job::Tool;

use self::image::Image;
use ::experiment::analysis::Analysis;
use ::experiment::directory::{DirectoryError, RunDirectory};
use ::experiment::lock::LockError;
use ::experiment::plan::PlanError;
use ::experiment::report;
use ::experiment::schedule::schedule;

use crate::config::ExperimentArgs;
use crate::host::registry::RegistryError;
use crate::report::ExitStatus;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Another experiment runs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Nowhere to look for another experiment.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The guests do not fit.
    #[error(
        "[guests] of the plan: {count} guests of {memory_mib} MiB, and {monitor_mib} MiB each for their monitors, are \
         {needed_mib} MiB, of which {available_mib} MiB are available; lower memory_mib or the ratio"
    )]
    Memory {
        /// Guests at the ratio that needs most.
        count: u32,
        /// Memory of each.
        memory_mib: u32,
        /// What is planned for the monitor of each.
        monitor_mib: u64,
        /// The sum.
        needed_mib: u64,
        /// What the host has left.
        available_mib: u64,
    },
    /// The host CPUs of this process.
    #[error("the host CPUs of this process cannot be read or set: {0}; mind its cpuset and affinity")]
    Affinity(#[source] io::Error),
    /// Files that Linux guests boot from.
    #[error(transparent)]
    Image(#[from] image::ImageError),
    /// The emulated host.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// The emulated host ended without a cell.
    #[error("the experiment on the emulated host ended with status {status} and brought no cell; it said: {said}")]
    NothingFromLab {
        /// Exit status in there.
        status: u8,
        /// What was said last.
        said: String,
    },
    /// CPUs that this process may not use.
    #[error(
        "the host CPUs {asked} are not within {allowed}, those that this process may use; mind its cpuset and affinity"
    )]
    Cpus {
        /// What is asked for.
        asked: String,
        /// What there is.
        allowed: String,
    },
    /// Signals.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] io::Error),
    /// The path of this program.
    #[error("the path of this program cannot be found: {0}; mount /proc")]
    OwnPath(#[source] io::Error),
}

impl ExperimentError {
    /// The exit status: a plan that is wrong is the user's fault.
    #[must_use]
    pub const fn status(&self) -> ExitStatus {
        match self {
            Self::Plan(_) | Self::Memory { .. } | Self::Cpus { .. } => ExitStatus::Usage,
            Self::Directory(_)
            | Self::Lock(_)
            | Self::Registry(_)
            | Self::Affinity(_)
            | Self::Image(_)
            | Self::Lab(_)
            | Self::NothingFromLab { .. }
            | Self::Signals(_)
            | Self::OwnPath(_) => ExitStatus::MonitorError,
        }
    }
}

/// What is printed, and the exit status.
#[derive(Debug)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// 1 if the experiment did not come to its end, or brought no number at all.
    pub status: ExitStatus,
}

/// Carries out `vmm experiment`.
///
/// # Errors
/// [`ExperimentError`].
pub fn execute(args: &ExperimentArgs) -> Result<Answer, ExperimentError> {
    match args {
        ExperimentArgs::Run { plan, out, dry_run, cpus, how } => {
            run::run(plan, out.as_deref(), *dry_run, cpus.as_ref(), how)
        }
        ExperimentArgs::Resume { run, how } => run::resume(run, how),
        ExperimentArgs::Image { directory, tool } => {
            let wanted = |one: &Tool| tool.is_empty() || tool.contains(one);
            let image = Image::of(&Tool::ALL.into_iter().filter(wanted).collect::<Vec<_>>())?;
            image.write(directory)?;
            Ok(Answer { text: image.table(), status: ExitStatus::PoweredOff })
        }
        ExperimentArgs::Report { run } => told(run, ExitStatus::PoweredOff),
        ExperimentArgs::Compare { base, other } => {
            let text = report::side_by_side(&analyse(base)?, &analyse(other)?);
            Ok(Answer { text, status: ExitStatus::PoweredOff })
        }
    }
}

fn analyse(run: &Path) -> Result<Analysis, ExperimentError> {
    let (directory, plan, info) = RunDirectory::open(run)?;
    Ok(Analysis::new(&plan, &info, &directory.cells()?, schedule(&plan).len()))
}

/// Writes the reports of a run, and gives the table with where they are.
fn told(run: &Path, status: ExitStatus) -> Result<Answer, ExperimentError> {
    let analysis = analyse(run)?;
    let (directory, ..) = RunDirectory::open(run)?;
    let table = report::markdown(&analysis);
    directory.write("report.md", table.as_bytes())?;
    directory.write("report.json", &::experiment::directory::json(&analysis))?;
    directory.write("report.csv", report::csv(&analysis).as_bytes())?;
    directory.write("samples.csv", report::samples_csv(&directory.cells()?).as_bytes())?;
    directory.write("report.html", report::html(&analysis, directory.look()?.as_ref()).as_bytes())?;
    let page: PathBuf = run.join("report.html");
    let nothing = analysis.groups.iter().all(|group| group.rows.iter().all(|row| row.throughput.is_none()));
    let status = if nothing { ExitStatus::MonitorError } else { status };
    Ok(Answer { text: format!("{table}\n{}\n", page.display()), status })
}
