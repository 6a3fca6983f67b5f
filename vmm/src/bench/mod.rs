// SPDX-License-Identifier: Apache-2.0
//! `vmm bench`: the same guest under different handling of its pause loops (`pause`), placed and not placed beside a busy task
//! (`placement`), or asked and not asked over its API (`api`), in paired runs.
//!
//! Each run is a child process of this same binary with `--report`; arms of a cell take turns, so that whatever else the
//! host does meets all of them alike. Invariant: every child has a deadline and is ended by its handle.

mod api;
mod cell;
mod child;
mod placement;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use topology::id::HostCpu;

use crate::host::affinity;

pub use api::{ApiArm, ApiBenchPlan, ApiMeasured, ApiSample, Round, api};
pub use cell::{Arm, Cell};
pub use child::ChildError;
pub use placement::{PlacementBenchPlan, WaitPair, WaitSample, placement};

/// What is measured, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchPlan {
    /// How long each run works, in milliseconds.
    pub milliseconds: u32,
    /// Runs of each arm of each cell.
    pub runs: u32,
    /// Only the cells whose workload or name contains this.
    pub only: Option<String>,
    /// Where all numbers are written as JSON.
    pub json: Option<PathBuf>,
    /// Host CPUs that the guests get; empty for the first two of the process.
    pub cpus: Vec<HostCpu>,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A run.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The host's CPUs.
    #[error("the host CPUs of this process cannot be read: {0}")]
    Affinity(#[source] io::Error),
    /// Output.
    #[error("{what} cannot be written: {source}")]
    Output {
        /// What.
        what: String,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// What one run brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Operations a second.
    pub rate: f64,
    /// Actions about pause loops for each operation.
    pub yields_per_operation: f64,
    /// Pause events, over all vCPUs.
    pub events: u64,
    /// Events that were bailed out of or fell into a quiet window after one.
    pub bailed: u64,
    /// Spinning, as a share of the time of all vCPUs; where the workload times it.
    pub spin_share: Option<f64>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// 99th percentile of the wait, in nanoseconds.
    pub wait_p99_ns: Option<u64>,
}

/// All runs of one cell, by arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which cell.
    pub cell: Cell,
    /// Samples by arm, in the order of [`Arm::ALL`]; the n-th samples of all arms were taken one after another.
    pub arms: Vec<(Arm, Vec<Sample>)>,
}

/// Measures every cell, tells progress on stderr, and gives the table.
///
/// # Errors
/// [`BenchError`]; what was measured before is lost but for the progress lines.
pub fn pause(plan: &BenchPlan) -> Result<String, BenchError> {
    let cpus = if plan.cpus.is_empty() {
        affinity::of_this_thread().map_err(BenchError::Affinity)?.iter().take(2).collect()
    } else {
        plan.cpus.clone()
    };
    let wanted = |cell: &Cell| plan.only.as_ref().is_none_or(|part| cell.name().contains(part.as_str()));
    let cells: Vec<Cell> = Cell::all(&cpus).into_iter().filter(wanted).collect();
    let mut measured = Vec::with_capacity(cells.len());
    for (done, cell) in cells.iter().enumerate() {
        measured.push(measure(cell, plan, (done + 1, cells.len()))?);
    }
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(&measured).map_err(io::Error::other);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|source| BenchError::Output { what: path.display().to_string(), source })?;
    }
    Ok(table::render(&measured, plan))
}

fn measure(cell: &Cell, plan: &BenchPlan, (number, of): (usize, usize)) -> Result<Measured, BenchError> {
    let mut arms: Vec<(Arm, Vec<Sample>)> = Arm::ALL.iter().map(|arm| (*arm, Vec::new())).collect();
    for run in 0..plan.runs {
        // Another arm begins each time: what the first pays for all, each pays in turn.
        let first = run as usize % arms.len();
        for turn in 0..arms.len() {
            let at = (first + turn) % arms.len();
            let (arm, samples) = &mut arms[at];
            samples.push(child::run(cell, *arm, plan.milliseconds)?);
        }
    }
    let medians: Vec<String> =
        arms.iter().map(|(arm, samples)| format!("{arm} {:.0}", table::median(samples, |one| one.rate))).collect();
    // Progress is for whoever watches; a closed stderr has nobody.
    let _ = writeln!(io::stderr(), "[{number}/{of}] {}: {} operations/s", cell.name(), medians.join(", "));
    Ok(Measured { cell: cell.clone(), arms })
}
