// SPDX-License-Identifier: Apache-2.0
//! Carries out a schedule: one cell after the other, each kept as soon as it is measured.
//!
//! How guests are started is the business of the [`Bench`] that is handed in. Invariant: a cell that fails fails alone; one
//! that was interrupted leaves nothing, and is run again when the run is resumed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::directory::{DirectoryError, RunDirectory, unix_s};
use crate::host;
use crate::others::Accounts;
use crate::plan::Plan;
use crate::sample::{CellRecord, GuestSample, Outcome};
use crate::schedule::{self, Cell};

/// Whoever runs a cell's guests.
pub trait Bench {
    /// Runs the guests of a cell, all at once, and gives a sample of each.
    ///
    /// # Errors
    /// [`CellEnd`]; nothing of the guests is left.
    fn run(&mut self, plan: &Plan, cell: &Cell) -> Result<Vec<GuestSample>, CellEnd>;

    /// Whether the user wants an end.
    fn is_interrupted(&mut self) -> bool;
}

/// How a cell ended without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellEnd {
    /// A guest failed, and why.
    Failed(String),
    /// The user wants an end.
    Interrupted,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Cells that are done.
    pub done: usize,
    /// All cells.
    pub cells: usize,
    /// The cell that was just done.
    pub record: &'a CellRecord,
    /// Time that is left at the pace so far.
    pub left: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Cells that are done, of this run and those before it.
    pub done: usize,
    /// Of these, cells without a number.
    pub failed: usize,
    /// All cells.
    pub cells: usize,
    /// Whether the user wanted an end before the last cell.
    pub interrupted: bool,
    /// Whether as many cells were run as were asked for, and there are more.
    pub stopped: bool,
}

/// Runs the cells of a plan that are not done yet, but no more than `at_most`. `tell` is called after each.
///
/// # Errors
/// [`DirectoryError`]: what was measured cannot be kept, so no more is measured.
pub fn run(
    directory: &RunDirectory,
    plan: &Plan,
    bench: &mut impl Bench,
    at_most: Option<usize>,
    mut tell: impl FnMut(&Progress<'_>),
) -> Result<RunEnd, DirectoryError> {
    let before = directory.cells()?;
    let known: BTreeSet<usize> = before.iter().map(|record| record.cell.number).collect();
    let cells = schedule::schedule(plan);
    let mut end = RunEnd {
        done: before.len(),
        failed: before.iter().filter(|record| record.outcome.samples().is_none()).count(),
        cells: cells.len(),
        interrupted: false,
        stopped: false,
    };
    let begun = Instant::now();
    for (ran, cell) in cells.iter().filter(|cell| !known.contains(&cell.number)).enumerate() {
        if at_most.is_some_and(|most| ran >= most) {
            end.stopped = true;
            return Ok(end);
        }
        let Some(record) = once(plan, bench, cell) else {
            end.interrupted = true;
            return Ok(end);
        };
        if record.outcome.samples().is_none() {
            directory.room()?;
        }
        directory.keep(&record)?;
        end.done += 1;
        end.failed += usize::from(record.outcome.samples().is_none());
        let each = begun.elapsed() / u32::try_from(ran + 1).unwrap_or(u32::MAX);
        let left = each * u32::try_from(end.cells - end.done).unwrap_or(u32::MAX);
        tell(&Progress { done: end.done, cells: end.cells, record: &record, left });
    }
    Ok(end)
}

/// One cell; none if the user wants an end.
fn once(plan: &Plan, bench: &mut impl Bench, cell: &Cell) -> Option<CellRecord> {
    if bench.is_interrupted() {
        return None;
    }
    let (load_before, began_unix_s, began) = (host::load(), unix_s(), Instant::now());
    let before = Accounts::now(&plan.cpus);
    let outcome = match bench.run(plan, cell) {
        Ok(samples) => Outcome::Measured(samples),
        Err(CellEnd::Failed(why)) => Outcome::Failed(why),
        Err(CellEnd::Interrupted) => return None,
    };
    let after = Accounts::now(&plan.cpus);
    let others_share = before.zip(after).and_then(|(before, after)| before.others_until(after));
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let name = schedule::name(plan, cell);
    Some(CellRecord { cell: *cell, name, began_unix_s, took_ms, load_before, others_share, outcome })
}
