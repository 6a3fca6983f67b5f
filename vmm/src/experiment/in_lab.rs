// SPDX-License-Identifier: Apache-2.0
//! Runs a plan on an emulated host: this same program, in there, with the same plan, some cells at a time.
//!
//! Each start of the lab host gets the run's directory as far as it is, runs the next cells in it, and sends it back.
//! Invariant: what a start brought is in the directory before the next begins; one that stops costs its own cells and no
//! others, and `resume` goes on.

use std::fs;
use std::path::{Component, Path};
use std::time::Duration;

use ::experiment::directory::{DirectoryError, INFO, PLAN, put};
use ::experiment::plan::{Place, Plan};
use ::experiment::schedule::{expected_ms, schedule};
use lab::{Lab, LabError, LabResult, Stream};

use super::ExperimentError;
use super::image::Image;
use crate::host::output::tell;
use crate::host::signals::EndingSignals;

/// Cells that one start of the lab host runs take about so long.
const START_MS: u64 = 240_000;
/// What a cell may take beside what is expected of it: the host is shared, and time in there is not time out here.
const CELL_GRACE: Duration = Duration::from_secs(60);
/// For the lab host to come up and go down.
const HOST_GRACE: Duration = Duration::from_secs(300);
/// How much longer a second counted in instructions takes than a real one, at most, on a machine that is not busy.
const REAL_PER_COUNTED: u64 = 6;
/// Starts that may stop by themselves, one after the other, before the run is given up.
const STARTS: u32 = 3;
/// Where the run's directory is in there; `/results` comes back.
const RUN: &str = "run/";

/// The emulated host that a plan asks for.
#[derive(Clone, Copy)]
pub(super) struct LabHost {
    cpus: u32,
    memory_mib: u32,
    counted_time: bool,
}

/// The emulated host that a plan asks for, if it asks for one.
pub(super) fn host(plan: &Plan) -> Option<LabHost> {
    match plan.place {
        Place::Native => None,
        Place::Lab { cpus, memory_mib, counted_time } => Some(LabHost { cpus, memory_mib, counted_time }),
    }
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Cells that are done.
    pub(super) done: usize,
    /// All cells.
    pub(super) cells: usize,
    /// A signal came.
    pub(super) interrupted: bool,
}

/// A run on an emulated host.
pub(super) struct LabRun<'a> {
    /// Its host, by [`host`].
    pub(super) host: LabHost,
    /// Its plan.
    pub(super) plan: &'a Plan,
    /// Its directory, where the plan is.
    pub(super) out: &'a Path,
    /// What its guests boot from.
    pub(super) image: &'a Image,
}

impl LabRun<'_> {
    /// Runs the cells that are not done yet, but no more than `at_most`.
    pub(super) fn run(&self, at_most: Option<usize>) -> Result<Ended, ExperimentError> {
        let mut signals = EndingSignals::block().map_err(ExperimentError::Signals)?;
        let (cells, first) = (schedule(self.plan).len(), done(self.out)?);
        let last = at_most.map_or(cells, |most| cells.min(first.saturating_add(most)));
        let mut before = first;
        while before < last {
            let now = self.cells_a_start().min(last - before);
            tell(&format!("vmm: starting an emulated host for cells {} to {} of {cells}\n", before + 1, before + now));
            let result = match self.start(now, || signals.end_it()) {
                Err(ExperimentError::Lab(LabError::Asked)) => {
                    return Ok(Ended { done: before, cells, interrupted: true });
                }
                result => result?,
            };
            for (name, bytes) in &result.files {
                if let Some(name) = name.strip_prefix(RUN).filter(|name| is_below(name)) {
                    put(self.out, name, bytes)?;
                }
            }
            let after = done(self.out)?;
            if after == before {
                return Err(ExperimentError::NothingFromLab { status: result.status, said: last_words(&result) });
            }
            before = after;
        }
        Ok(Ended { done: before, cells, interrupted: false })
    }

    /// A repetition, if it does not take too long.
    fn cells_a_start(&self) -> usize {
        let repetition = self.plan.workloads.len() * self.plan.loads.len() * self.plan.arms.len();
        let fitting = usize::try_from(START_MS / self.cell_ms().max(1)).unwrap_or(1);
        repetition.min(fitting.max(1))
    }

    /// What a cell takes out here.
    fn cell_ms(&self) -> u64 {
        expected_ms(self.plan, 1, None) * if self.host.counted_time { REAL_PER_COUNTED } else { 1 }
    }

    /// One start of the lab host, for the next `now` cells.
    fn start(&self, now: usize, stop: impl FnMut() -> bool) -> Result<LabResult, ExperimentError> {
        let LabHost { cpus, memory_mib, counted_time } = self.host;
        let program = std::env::current_exe().map_err(ExperimentError::OwnPath)?;
        let each = Duration::from_millis(self.cell_ms()) + CELL_GRACE;
        let limit = each * u32::try_from(now).unwrap_or(u32::MAX) + HOST_GRACE;
        let mut lab = Lab::new()
            .host(&cpus.to_string())
            .memory_mib(memory_mib)
            .pause_filter(true)
            .counted_time(counted_time)
            .program_at(program, "/bin/vmm")
            .deadline(limit * STARTS)
            .starts(STARTS)
            .on_stream(pass_on())
            .stop_when(stop);
        for (name, bytes) in self.image.files() {
            lab = lab.file(&format!("/image/{name}"), bytes.clone());
        }
        for (name, bytes) in kept(self.out)? {
            lab = lab.file(&format!("/results/{RUN}{name}"), bytes);
        }
        Ok(lab.run(&script(self.out.join(INFO).exists(), now))?)
    }
}

/// What the lab host runs. A run begins in a directory of its own, which then takes the place of the plan's.
fn script(goes_on: bool, now: usize) -> String {
    let (command, moved) = match goes_on {
        true => ("resume /results/run", ""),
        false => ("run /results/run/plan.toml --out /run/new", "rm -r /results/run; cp -r /run/new /results/run; "),
    };
    format!(
        "export VMM_CLAIMS_DIR=/run/claims\nvmm experiment {command} --here --image /image --at-most {now} >/dev/null\n\
         status=$?; {moved}exit $status\n"
    )
}

/// Cells of a run that are done.
fn done(out: &Path) -> Result<usize, ExperimentError> {
    let cells = out.join("cells");
    match fs::read_dir(&cells) {
        Ok(entries) => {
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            Ok(names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).count())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(DirectoryError::Read { path: cells, source }.into()),
    }
}

/// The files that a start needs to go on: the plan, what was written when the run began, and the cells.
fn kept(out: &Path) -> Result<Vec<(String, Vec<u8>)>, DirectoryError> {
    let mut names: Vec<String> =
        [PLAN, INFO].iter().filter(|name| out.join(name).exists()).map(ToString::to_string).collect();
    for directory in ["machines", "cells"] {
        let Ok(entries) = fs::read_dir(out.join(directory)) else { continue };
        let below = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.extend(below.filter(|name| !name.starts_with('.')).map(|name| format!("{directory}/{name}")));
    }
    let file = |name: String| {
        let path = out.join(&name);
        fs::read(&path).map(|bytes| (name, bytes)).map_err(|source| DirectoryError::Read { path, source })
    };
    names.into_iter().map(file).collect()
}

/// Whether a name that came out of the lab stays below the directory that it is written to.
fn is_below(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Passes on what the program in there says of its progress; the rest of the console is the kernel's.
fn pass_on() -> impl FnMut(Stream, &[u8]) {
    let mut line = Vec::new();
    move |stream, bytes| {
        if stream == Stream::Output {
            return;
        }
        for byte in bytes {
            if *byte != b'\n' {
                // A console without line ends is not kept without a bound.
                if line.len() < 1024 {
                    line.push(*byte);
                }
                continue;
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if is_ours(&text) {
                tell(&format!("{text}\n"));
            }
            line.clear();
        }
    }
}

/// `vmm: …`, or `[3/60] …`, which is not a kernel's `[    3.6] …`.
fn is_ours(line: &str) -> bool {
    let progress = || {
        let (done, cells) = line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?;
        Some([done, cells].iter().all(|number| number.bytes().all(|byte| byte.is_ascii_digit())))
    };
    line.starts_with("vmm: ") || progress() == Some(true)
}

/// What the program in there said last.
fn last_words(result: &LabResult) -> String {
    let said = result.console.lines().rev().find(|line| line.starts_with("vmm: "));
    said.unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_from_the_kernels_lines() {
        for line in ["vmm: it failed", "[3/60] dbench 2x act #1: 12 operations/s, 1:00 left"] {
            assert!(is_ours(line), "{line}");
        }
        for line in ["[    3.612345] Freeing memory", "[12345.6] x/y]", "lab: ready", "", "[a/b] c"] {
            assert!(!is_ours(line), "{line}");
        }
    }

    #[test]
    fn nothing_is_written_outside_the_runs_directory() {
        for name in ["cells/00001.json", "report.html"] {
            assert!(is_below(name), "{name}");
        }
        for name in ["", "/etc/passwd", "../x", "cells/../../x"] {
            assert!(!is_below(name), "{name}");
        }
    }

    #[test]
    fn what_is_done_is_counted_and_what_a_start_needs_is_found() {
        let out = std::env::temp_dir().join(format!("vmm-in-lab-{}", std::process::id()));
        assert_eq!(done(&out).expect("nothing yet"), 0);
        for (name, bytes) in
            [("plan.toml", "p"), ("cells/00000.json", "{}"), ("cells/.x.part", "half"), ("report.md", "r")]
        {
            put(&out, name, bytes.as_bytes()).expect("written");
        }
        assert_eq!(done(&out).expect("one"), 1);
        let names: Vec<String> = kept(&out).expect("read").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["plan.toml", "cells/00000.json"]);
        fs::remove_dir_all(&out).expect("removed");
    }
}
