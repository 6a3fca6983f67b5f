// SPDX-License-Identifier: Apache-2.0
//! `vmm experiment run` and `resume`: from a plan to a run directory full of cells.
//!
//! Invariant: everything that can be refused is refused before the directory is made and the first guest starts.

use std::fmt::Write;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::experiment::directory::{INFO, PLAN, Resumed, RunDirectory, RunInfo, put, unix_s};
use ::experiment::host::HostState;
use ::experiment::lock::{self, HostLock};
use ::experiment::memory;
use ::experiment::plan::{MONITOR_MIB, Plan, PlanError};
use ::experiment::program::fingerprint;
use ::experiment::runner::{self, CellEnd, Progress, RunEnd};
use ::experiment::sample::Outcome;
use ::experiment::schedule::{expected_ms, name, schedule};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::cell::NativeBench;
use super::image::{self, Image, ImageFiles};
use super::in_lab::{self, Ended, LabRun};
use super::{Answer, ExperimentError, machine, told};
use crate::config::HowArgs;
use crate::host::output::tell;
use crate::host::registry::Registry;
use crate::host::signals::EndingSignals;
use crate::host::{affinity, facts};
use crate::report::ExitStatus;

/// Runs a plan from its beginning.
pub(super) fn run(
    path: &Path,
    out: Option<&Path>,
    dry_run: bool,
    cpus: Option<&CpuSet<HostCpu>>,
    how: &HowArgs,
) -> Result<Answer, ExperimentError> {
    let allowed = affinity::of_this_thread().map_err(ExperimentError::Affinity)?;
    let allowed = within(cpus.unwrap_or(&allowed), &allowed)?;
    let (plan, text) = Plan::read(path, &allowed)?;
    let out = out.map_or_else(|| PathBuf::from(format!("{}-{}", plan.name, unix_s())), Path::to_path_buf);
    let files = image_files(&out, how);
    let refused = |fault| PlanError::Content { path: path.to_owned(), fault: Box::new(fault) };
    let machines = machine::all(&plan, &files).map_err(refused)?;
    let lab = in_lab::host(&plan).filter(|_| !how.here);
    if lab.is_none() {
        within(&plan.cpus, &allowed)?;
        fits(&plan)?;
    }
    if dry_run {
        return Ok(Answer { text: schedule_text(&plan), status: ExitStatus::PoweredOff });
    }
    let image = image(&plan, how)?;
    let _only = only_one(&plan, &out)?;
    if let Some(host) = lab {
        RunDirectory::claim(&out)?;
        put(&out, PLAN, text.as_bytes())?;
        let ended = LabRun { host, plan: &plan, out: &out, image: &image }.run(how.at_most);
        forget_if_empty(&out);
        return so_far(&out, ended?);
    }
    let info = info(&plan, &allowed);
    let directory = RunDirectory::create(&out, &text, &info)?;
    for (name, text) in &machines {
        directory.keep_machine(name, text)?;
    }
    if plan.is_linux() && how.image.is_none() {
        image.write(&files.0)?;
    }
    carry_out(&directory, &plan, how.at_most)
}

/// What is to be known about a run that begins now.
fn info(plan: &Plan, allowed: &CpuSet<HostCpu>) -> RunInfo {
    let host = HostState::of_this_host(&facts::kvm_kind().to_string());
    let program = std::env::current_exe().and_then(|path| fingerprint(&path)).ok();
    RunInfo { program, ..RunInfo::new(plan, allowed, env!("CARGO_PKG_VERSION"), host) }
}

/// Goes on with a run.
pub(super) fn resume(path: &Path, how: &HowArgs) -> Result<Answer, ExperimentError> {
    let (directory, plan, mut begun) = RunDirectory::open(path)?;
    let image = image(&plan, how)?;
    let _only = only_one(&plan, path)?;
    if let Some(host) = in_lab::host(&plan).filter(|_| !how.here) {
        return so_far(path, LabRun { host, plan: &plan, out: path, image: &image }.run(how.at_most)?);
    }
    within(&plan.cpus, &affinity::of_this_thread().map_err(ExperimentError::Affinity)?)?;
    fits(&plan)?;
    let refused = |fault| PlanError::Content { path: path.join("plan.toml"), fault: Box::new(fault) };
    for (name, text) in &machine::all(&plan, &image_files(path, how)).map_err(refused)? {
        directory.keep_machine(name, text)?;
    }
    let now = info(&plan, &begun.allowed);
    let mut changes = begun.host.differences(&now.host);
    changes.extend(begun.program_differences(&now));
    for change in &changes {
        tell(&format!("vmm: warning: since the run began, this has changed: {change}\n"));
    }
    begun.resumed.push(Resumed { at_unix_s: now.began_unix_s, done: directory.cells()?.len(), changes });
    directory.keep_info(&begun)?;
    if plan.is_linux() && how.image.is_none() {
        image.write(&image_files(path, how).0)?;
    }
    carry_out(&directory, &plan, how.at_most)
}

/// Removes the directory of a run that brought nothing, so that it can be run again under the same name.
fn forget_if_empty(out: &Path) {
    if !out.join(INFO).exists() {
        // What cannot be removed is in the way of the next run, which says so.
        let _ = fs::remove_file(out.join(PLAN));
        let _ = fs::remove_dir(out);
    }
}

/// What came of a run on an emulated host.
fn so_far(out: &Path, ended: Ended) -> Result<Answer, ExperimentError> {
    let Ended { done, cells, interrupted } = ended;
    let text = match done {
        0 => "no cell is done and nothing is kept\n".to_owned(),
        _ => format!("{done} of {cells} cells are done; `vmm experiment resume {}` goes on\n", out.display()),
    };
    match (interrupted, done == cells) {
        (_, true) => told(out, ExitStatus::PoweredOff),
        (false, false) => Ok(Answer { text, status: ExitStatus::PoweredOff }),
        (true, false) => {
            tell(&format!("vmm: interrupted: {text}"));
            Ok(Answer { text: String::new(), status: ExitStatus::MonitorError })
        }
    }
}

/// CPUs, if this process may use them.
fn within(asked: &CpuSet<HostCpu>, allowed: &CpuSet<HostCpu>) -> Result<CpuSet<HostCpu>, ExperimentError> {
    match asked.iter().all(|cpu| allowed.contains(cpu)) {
        true => Ok(asked.clone()),
        false => Err(ExperimentError::Cpus { asked: asked.to_string(), allowed: allowed.to_string() }),
    }
}

/// Where the guests of a run find what they boot from: by whole paths, for a machine is run by hand from anywhere.
fn image_files(out: &Path, how: &HowArgs) -> ImageFiles {
    let directory = how.image.clone().unwrap_or_else(|| out.join("guest"));
    ImageFiles(std::path::absolute(&directory).unwrap_or(directory))
}

/// What the guests of a plan boot from; empty for the probe guest, which this program carries.
fn image(plan: &Plan, how: &HowArgs) -> Result<Image, ExperimentError> {
    let tools = image::tools(plan);
    Ok(match &how.image {
        _ if tools.is_empty() => Image::default(),
        Some(directory) => {
            ImageFiles(directory.clone()).check(&tools)?;
            Image::read(directory, &tools)?
        }
        None => {
            let image = Image::of(&tools)?;
            tell(&format!("vmm: guests boot {}", image.table()));
            image
        }
    })
}

fn only_one(plan: &Plan, out: &Path) -> Result<HostLock, ExperimentError> {
    let who = format!("process {}, plan {}, into {}", std::process::id(), plan.name, out.display());
    let registry = Registry::of_this_user()?;
    let lock = HostLock::take(&registry.experiment_lock(), &who)?;
    for others in registry.experiment_locks_of_others() {
        lock::is_free(&others)?;
    }
    Ok(lock)
}

/// Refuses guests that the host has no memory for. Where it does not say how much it has, nothing is refused.
fn fits(plan: &Plan) -> Result<(), ExperimentError> {
    let (needed_mib, guests) = plan.most_memory();
    match memory::available_mib() {
        Some(available_mib) if needed_mib > available_mib => Err(ExperimentError::Memory {
            count: guests.count,
            memory_mib: guests.memory_mib,
            monitor_mib: MONITOR_MIB,
            needed_mib,
            available_mib,
        }),
        _ => Ok(()),
    }
}

fn carry_out(directory: &RunDirectory, plan: &Plan, at_most: Option<usize>) -> Result<Answer, ExperimentError> {
    let _lock = directory.lock()?;
    directory.sweep()?;
    let signals = EndingSignals::block().map_err(ExperimentError::Signals)?;
    // Guests inherit it: whatever their arm says about placement, they stay on these CPUs.
    affinity::pin_this_thread(plan.cpus.iter()).map_err(ExperimentError::Affinity)?;
    let program = std::env::current_exe().map_err(ExperimentError::OwnPath)?;
    let mut bench = NativeBench { program, directory, signals, interrupted: false };
    let mut line = Line { is_terminal: io::stderr().is_terminal() };
    let end = runner::run(directory, plan, &mut bench, at_most, |progress| line.draw(progress))?;
    let RunEnd { done, failed, cells, interrupted, stopped } = end;
    if failed > 0 {
        tell(&format!("vmm: {failed} of {done} cells brought no number; the report says which and why\n"));
    }
    if interrupted {
        let path = directory.path().display();
        tell(&format!("vmm: interrupted after {done} of {cells} cells; `vmm experiment resume {path}` goes on\n"));
        return told(directory.path(), ExitStatus::MonitorError);
    }
    if stopped {
        let path = directory.path().display();
        let text = format!("{done} of {cells} cells are done; `vmm experiment resume {path}` goes on\n");
        return Ok(Answer { text, status: ExitStatus::PoweredOff });
    }
    look(directory, plan, &mut bench)?;
    told(directory.path(), ExitStatus::PoweredOff)
}

/// Takes the close look that the plan asks for, if it was not taken. Without it the numbers are the same.
fn look(directory: &RunDirectory, plan: &Plan, bench: &mut NativeBench<'_>) -> Result<(), ExperimentError> {
    let Some(look) = plan.look else { return Ok(()) };
    if directory.look()?.is_some() {
        return Ok(());
    }
    match bench.look(plan, look) {
        Ok(record) => directory.keep_look(&record)?,
        Err(CellEnd::Failed(why)) => tell(&format!("vmm: warning: no close look at the run in [look]: {why}\n")),
        Err(CellEnd::Interrupted) => {
            tell("vmm: interrupted during the close look of [look]; `resume` takes it again\n")
        }
    }
    Ok(())
}

/// How far the run is, for whoever watches.
struct Line {
    is_terminal: bool,
}

impl Line {
    /// A line that is drawn over on a terminal; elsewhere a line for each twentieth, and for each cell that failed.
    fn draw(&mut self, progress: &Progress<'_>) {
        let text = said(progress);
        let last = progress.done == progress.cells;
        let twentieth = progress.done.is_multiple_of(progress.cells.div_ceil(20));
        if let Outcome::Failed(why) = &progress.record.outcome {
            tell(&format!("{}vmm: {}: {why}\n", if self.is_terminal { "\r\x1b[K" } else { "" }, progress.record.name));
        }
        if self.is_terminal {
            tell(&format!("\r\x1b[K{text}{}", if last { "\n" } else { "" }));
        } else if last || twentieth {
            tell(&format!("{text}\n"));
        }
    }
}

fn said(progress: &Progress<'_>) -> String {
    let brought = match &progress.record.outcome {
        Outcome::Measured(samples) => {
            format!("{:.0} operations/s", samples.iter().map(|guest| guest.operations_per_s).sum::<f64>())
        }
        Outcome::Failed(_) => "failed".to_owned(),
    };
    let Progress { done, cells, record, left } = progress;
    format!("[{done}/{cells}] {}: {brought}, {} left", record.name, clock(*left))
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// What `--dry-run` prints.
fn schedule_text(plan: &Plan) -> String {
    let cells = schedule(plan);
    let mut text = format!(
        "{}: {} cells on host CPUs {}, {} at about {} ms each\n\n",
        plan.name,
        cells.len(),
        plan.cpus,
        clock(Duration::from_millis(expected_ms(plan, cells.len(), None))),
        expected_ms(plan, 1, None)
    );
    for load in &plan.loads {
        let guests = load.guests;
        let _ = writeln!(
            text,
            "{:>6}: {} guests of {} vCPUs, {} MiB in all",
            load.ratio.to_string(),
            guests.count,
            guests.vcpus,
            guests.all_mib()
        );
    }
    text.push('\n');
    for cell in &cells {
        let _ = writeln!(text, "{:>5}  {}", cell.number + 1, name(plan, cell));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_shown_with_its_time() {
        let text = "name = \"x\"\nrepetitions = 1\nwindow_ms = 940\novercommit = [1, 4]\nworkloads = [\"ring\"]\n\
                    arms = [\"off\"]\n[guests]\nvcpus = 2\ncpus = \"0-1\"\n";
        let plan = Plan::parse(text, &"0-1".parse().expect("a list")).expect("a plan");
        let shown = schedule_text(&plan);
        assert!(shown.starts_with("x: 2 cells on host CPUs 0-1, 0:02 at about 1000 ms each\n"), "{shown}");
        assert!(shown.contains("4x: 4 guests of 2 vCPUs, 320 MiB in all"), "{shown}");
        assert!(shown.contains("ring 1x off #1"), "{shown}");
    }

    #[test]
    fn guests_that_do_not_fit_are_refused_with_their_sum() {
        let text = "name = \"x\"\nrepetitions = 1\nwindow_ms = 940\novercommit = [64]\nworkloads = [\"ring\"]\n\
                    arms = [\"off\"]\n[guests]\nvcpus = 1\nmemory_mib = 1048576\ncpus = \"0\"\n";
        let plan = Plan::parse(text, &"0".parse().expect("a list")).expect("a plan");
        let refused = fits(&plan).expect_err("64 TiB");
        assert_eq!(refused.status(), ExitStatus::Usage);
        assert!(refused.to_string().contains("are 67109888 MiB, of which"), "{refused}");
    }
}
