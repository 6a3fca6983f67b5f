// SPDX-License-Identifier: Apache-2.0
//! Runs of made-up guests: what is kept, what a failure costs, what an end in between costs, what a full disk does.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;

use experiment::directory::{DirectoryError, RunDirectory, RunInfo};
use experiment::host::HostState;
use experiment::plan::Plan;
use experiment::runner::{self, Bench, CellEnd, RunEnd};
use experiment::sample::{CellRecord, GuestSample, Outcome};
use experiment::schedule::{Cell, schedule};

const PLAN: &str = "name = \"made-up\"\nrepetitions = 2\nwindow_ms = 100\novercommit = [1, 2]\nworkloads = [\"ring\"]\n\
                    arms = [\"off\", \"act\"]\n[guests]\ncount = 2\n";

/// Guests that are made up: cell 3 fails, and the user wants an end before cell `stop`.
struct MadeUp {
    ran: Vec<usize>,
    stop: usize,
}

impl Bench for MadeUp {
    fn run(&mut self, plan: &Plan, cell: &Cell) -> Result<Vec<GuestSample>, CellEnd> {
        if cell.number == 3 {
            return Err(CellEnd::Failed("guest 1 never came up".to_owned()));
        }
        self.ran.push(cell.number);
        let guests = plan.loads[cell.load].guests.count;
        let rate = 100.0 * (cell.arm + 1) as f64;
        Ok((0..guests).map(|_| GuestSample { operations_per_s: rate, ..GuestSample::default() }).collect())
    }

    fn is_interrupted(&mut self) -> bool {
        self.ran.len() >= self.stop
    }
}

fn plan() -> Plan {
    Plan::parse(PLAN, &"0-1".parse().unwrap()).unwrap()
}

fn create(path: &Path) -> Result<RunDirectory, DirectoryError> {
    let info = RunInfo::new(&plan(), &"0-1".parse().unwrap(), "0.1.0", HostState::default());
    RunDirectory::create(path, PLAN, &info)
}

fn run(directory: &RunDirectory, stop: usize) -> (RunEnd, Vec<usize>) {
    let mut bench = MadeUp { ran: Vec::new(), stop };
    let mut told = 0;
    let end = runner::run(directory, &plan(), &mut bench, None, |progress| {
        told += 1;
        assert!(progress.done <= progress.cells);
    });
    assert!(told >= bench.ran.len());
    (end.unwrap(), bench.ran)
}

#[test]
fn an_interrupted_run_goes_on_where_it_was_and_a_failed_cell_fails_alone() {
    let at = tempfile::tempdir().unwrap();
    let directory = create(&at.path().join("run")).unwrap();
    let (end, ran) = run(&directory, 2);
    assert_eq!((end, ran), (RunEnd { done: 2, failed: 0, cells: 8, interrupted: true, stopped: false }, vec![0, 1]));
    let (opened, plan, info) = RunDirectory::open(directory.path()).unwrap();
    assert_eq!((plan.name.as_str(), info.schema), ("made-up", 1));
    let (end, ran) = run(&opened, 100);
    assert_eq!(
        (end, ran),
        (RunEnd { done: 8, failed: 1, cells: 8, interrupted: false, stopped: false }, vec![2, 4, 5, 6, 7])
    );
    let records = opened.cells().unwrap();
    let expected: Vec<Cell> = schedule(&plan);
    assert_eq!(records.iter().map(|record| record.cell).collect::<Vec<_>>(), expected);
    assert_eq!(records[3].outcome, Outcome::Failed("guest 1 never came up".to_owned()));
    assert_eq!(records[4].outcome.samples().map(<[GuestSample]>::len), Some(2));
    let (again, ran) = run(&opened, 100);
    assert_eq!((again.done, ran), (8, vec![]));
}

#[test]
fn a_directory_that_holds_something_is_not_taken() {
    let at = tempfile::tempdir().unwrap();
    create(at.path()).unwrap();
    assert!(matches!(create(at.path()), Err(DirectoryError::Taken(_))));
    let first = RunDirectory::open(at.path()).unwrap().0;
    let lock = first.lock().unwrap();
    assert!(first.lock().unwrap_err().to_string().contains(&format!("process {}", std::process::id())));
    drop(lock);
}

#[test]
fn what_was_damaged_is_named() {
    let at = tempfile::tempdir().unwrap();
    assert!(RunDirectory::open(at.path()).unwrap_err().to_string().contains("run.json: cannot be read"));
    let directory = create(&at.path().join("run")).unwrap();
    run(&directory, 1);
    fs::write(directory.path().join("cells/.00001.part"), "half").unwrap();
    assert_eq!(directory.cells().unwrap().len(), 1, "what is half written is no cell");
    fs::write(directory.path().join("cells/00001.json"), "{\"cell\":").unwrap();
    let damaged = directory.cells().unwrap_err().to_string();
    assert!(damaged.contains("00001.json") && damaged.contains("EOF"), "{damaged}");
    fs::write(directory.path().join("plan.toml"), "name = 3").unwrap();
    assert!(RunDirectory::open(directory.path()).unwrap_err().to_string().contains("line 1: name"));
    let info = fs::read_to_string(directory.path().join("run.json")).unwrap();
    fs::write(directory.path().join("run.json"), info.replace("\"schema\": 1", "\"schema\": 9")).unwrap();
    assert!(RunDirectory::open(directory.path()).unwrap_err().to_string().contains("schema 9 instead of 1"));
}

#[test]
fn what_cannot_be_kept_ends_the_run_with_the_file_named() {
    let at = tempfile::tempdir().unwrap();
    let directory = create(&at.path().join("run")).unwrap();
    let cells = directory.path().join("cells");
    let mut bench = MadeUp { ran: Vec::new(), stop: 100 };
    let ended = runner::run(&directory, &plan(), &mut bench, None, |progress| {
        if progress.done == 2 {
            fs::remove_dir_all(&cells).unwrap();
        }
    });
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("cells/00002.json: cannot be written") && error.contains("resume"), "{error}");
    assert_eq!(bench.ran, [0, 1, 2], "nothing is measured that cannot be kept");
    // Always full, on every machine: the error is the same as that of a disk.
    let full = RunDirectory::create(Path::new("/dev/full/run"), PLAN, &info_of_nothing()).unwrap_err();
    assert!(full.to_string().contains("/dev/full/run"), "{full}");
}

#[test]
fn what_a_killed_run_left_half_done_is_swept_away_and_nothing_else() {
    let at = tempfile::tempdir().unwrap();
    let directory = create(&at.path().join("run")).unwrap();
    run(&directory, 2);
    for name in [".guest-0.json", ".decisions", "cells/.abc.part", "machines/.abc.part"] {
        fs::write(directory.path().join(name), "half").unwrap();
    }
    directory.sweep().unwrap();
    let names =
        |below: &str| fs::read_dir(directory.path().join(below)).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = ["", "cells", "machines"].into_iter().flat_map(names).collect();
    assert_eq!(left.len(), 6, "plan, info, two directories, two cells: {left:?}");
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
}

#[test]
fn a_machine_is_the_one_of_the_plan_or_refused() {
    let at = tempfile::tempdir().unwrap();
    let directory = create(&at.path().join("run")).unwrap();
    directory.keep_machine("a", "cpus = 1").unwrap();
    directory.keep_machine("a", "cpus = 1").unwrap();
    let refused = directory.keep_machine("a", "cpus = 2").unwrap_err().to_string();
    assert!(refused.contains("machines/a.toml: is not the machine of the plan"), "{refused}");
    assert_eq!(fs::read_to_string(directory.machine("a")).unwrap(), "cpus = 1");
}

fn info_of_nothing() -> RunInfo {
    RunInfo::new(&plan(), &"0-1".parse().unwrap(), "", HostState::default())
}

#[test]
fn a_record_reads_back_as_it_was_kept() {
    let at = tempfile::tempdir().unwrap();
    let directory = create(&at.path().join("run")).unwrap();
    let cell = schedule(&plan())[5];
    let samples = vec![GuestSample { operations: 3, wait_p99_ns: Some(7), ..GuestSample::default() }];
    let outcome = Outcome::Measured(samples);
    let (load_before, others_share) = (Some(0.5), Some(0.25));
    let record =
        CellRecord { cell, name: "x".to_owned(), began_unix_s: 1, took_ms: 2, load_before, others_share, outcome };
    directory.keep(&record).unwrap();
    assert_eq!(directory.cells().unwrap(), [record]);
}
