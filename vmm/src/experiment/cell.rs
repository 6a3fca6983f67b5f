// SPDX-License-Identifier: Apache-2.0
//! A cell: guests that come up, begin together, and end, or are ended when their time is up.
//!
//! Invariant: whatever happens, no guest is left when the cell is done.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use guest::line::Line;

use ::experiment::directory::RunDirectory;
use ::experiment::look::LookRecord;
use ::experiment::plan::{Look, Plan};
use ::experiment::runner::{Bench, CellEnd};
use ::experiment::sample::GuestSample;
use ::experiment::schedule::Cell;

use super::guest::{Guest, Message, Told};
use super::{machine, sample};
use crate::host::signals::EndingSignals;

/// How often signals and ends are looked for while nothing is told.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs cells on this host.
pub(super) struct NativeBench<'a> {
    /// This program.
    pub(super) program: PathBuf,
    /// Where machines are, and reports go.
    pub(super) directory: &'a RunDirectory,
    /// The signals that end a run.
    pub(super) signals: EndingSignals,
    /// One came.
    pub(super) interrupted: bool,
}

impl Bench for NativeBench<'_> {
    fn run(&mut self, plan: &Plan, cell: &Cell) -> Result<Vec<GuestSample>, CellEnd> {
        match self.measure(plan, (cell.workload, cell.load, cell.arm), None) {
            // A host that shuts down ends the guests too: their end is no failure then.
            Err(CellEnd::Failed(_)) if self.is_interrupted() => Err(CellEnd::Interrupted),
            end => end,
        }
    }

    fn is_interrupted(&mut self) -> bool {
        self.interrupted |= self.signals.end_it();
        self.interrupted
    }
}

impl NativeBench<'_> {
    /// Runs the guests of a workload, a ratio and an arm; the first logs its decisions to `log`, if that is given.
    fn measure(
        &mut self,
        plan: &Plan,
        which: (usize, usize, usize),
        log: Option<&Path>,
    ) -> Result<Vec<GuestSample>, CellEnd> {
        let limit = Duration::from_secs(plan.time_limit_s.into());
        let mut guests = self.start(plan, which, Instant::now() + limit, log)?;
        guests.each(self, Told::Ready, "come up")?;
        guests.have_cpus(plan.loads[which.1].guests.vcpus)?;
        guests.begin()?;
        guests.each(self, Told::Result, "bring its result")?;
        guests.each(self, Told::Closed, "end")?;
        guests.samples(self)
    }

    /// Runs what the plan wants looked at closely, once more than the cells.
    pub(super) fn look(&mut self, plan: &Plan, look: Look) -> Result<LookRecord, CellEnd> {
        let log = RemovedFile(self.directory.path().join(".decisions"));
        let name = format!(
            "{} {} {}",
            plan.workloads[look.workload].name, plan.loads[look.load].ratio, plan.arms[look.arm].name
        );
        let samples = self.measure(plan, (look.workload, look.load, look.arm), Some(&log.0))?;
        let first = samples.first().ok_or_else(|| failed(0, "is not there".to_owned()))?;
        let bytes = std::fs::read(&log.0).map_err(|error| failed(0, format!("left no decision log: {error}")))?;
        super::look::of(&name, first, &bytes)
            .map_err(|error| failed(0, format!("left a decision log that is none: {error}")))
    }

    fn start(
        &self,
        plan: &Plan,
        which: (usize, usize, usize),
        deadline: Instant,
        log: Option<&Path>,
    ) -> Result<Guests, CellEnd> {
        let config = self.directory.machine(&machine::name(plan, which));
        let (sender, messages) = mpsc::channel();
        let count = plan.loads[which.1].guests.count as usize;
        let (told, agents) = (vec![Vec::new(); count], vec![None; count]);
        let mut guests = Guests { all: Vec::new(), messages, told, agents, deadline };
        for number in 0..count {
            let report = self.directory.path().join(format!(".guest-{number}.json"));
            let mut command = Command::new(&self.program);
            command.arg("--config").arg(&config);
            if let (0, Some(log)) = (number, log) {
                command.arg("--decision-log").arg(log);
            }
            let guest = Guest::start(command, report, number, sender.clone());
            guests.all.push(guest.map_err(|error| failed(number, format!("cannot be started: {error}")))?);
        }
        Ok(guests)
    }
}

/// A file that is gone when this is.
struct RemovedFile(PathBuf);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        // A run that failed may have written none.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The guests of a cell; dropping them ends them.
struct Guests {
    all: Vec<Guest>,
    messages: Receiver<Message>,
    /// What each told, and when.
    told: Vec<Vec<(Told, Instant)>>,
    /// What the agent of each said last, if it has one.
    agents: Vec<Option<Line>>,
    deadline: Instant,
}

impl Guests {
    fn when(&self, guest: usize, told: Told) -> Option<Instant> {
        self.told[guest].iter().find(|(one, _)| *one == told).map(|(_, at)| *at)
    }

    /// Waits until every guest has told `wanted`; `what` says in words what one that does not fails to do.
    fn each(&mut self, bench: &mut NativeBench<'_>, wanted: Told, what: &str) -> Result<(), CellEnd> {
        while let Some(missing) = (0..self.all.len()).find(|guest| self.when(*guest, wanted).is_none()) {
            if bench.is_interrupted() {
                return Err(CellEnd::Interrupted);
            }
            let ended = (0..self.all.len())
                .find(|guest| self.when(*guest, wanted).is_none() && self.when(*guest, Told::Closed).is_some());
            if let Some(guest) = ended {
                return Err(self.how_it_ended(guest, &format!("ended and did not {what}")));
            }
            if let Some(guest) = (0..self.all.len()).find(|guest| self.when(*guest, Told::Failure).is_some()) {
                return Err(self.how_it_ended(guest, &format!("failed and did not {what}")));
            }
            if Instant::now() > self.deadline {
                return Err(failed(missing, format!("did not {what} within the time limit, and was ended")));
            }
            match self.messages.recv_timeout(LOOK_EVERY) {
                Ok(Message { guest, told, at, agent }) => {
                    self.told[guest].push((told, at));
                    self.agents[guest] = agent.or(self.agents[guest].take());
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        Ok(())
    }

    /// A Linux guest says how many CPUs it has: fewer than it was given are another experiment.
    fn have_cpus(&self, vcpus: u32) -> Result<(), CellEnd> {
        for (number, agent) in self.agents.iter().enumerate() {
            match agent {
                Some(Line::Waiting(cpus)) if *cpus != vcpus => {
                    return Err(failed(number, format!("came up with {cpus} of its {vcpus} CPUs")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Lets all workloads begin, one directly after the other.
    fn begin(&mut self) -> Result<(), CellEnd> {
        for (number, guest) in self.all.iter_mut().enumerate() {
            guest.begin().map_err(|error| failed(number, format!("cannot be told to begin: {error}")))?;
        }
        Ok(())
    }

    /// Waits for the processes, and reads what they left.
    fn samples(&mut self, bench: &mut NativeBench<'_>) -> Result<Vec<GuestSample>, CellEnd> {
        let first = (0..self.all.len()).filter_map(|guest| self.when(guest, Told::Result)).min();
        let mut samples = Vec::with_capacity(self.all.len());
        for number in 0..self.all.len() {
            let status = self.status(bench, number)?;
            if !status.success() {
                return Err(self.how_it_ended(number, &format!("ended with {status}")));
            }
            let report = self.all[number].report().map_err(|why| failed(number, why))?;
            let late = self.when(number, Told::Result).zip(first).map(|(at, first)| at.duration_since(first));
            let late_us = late.map_or(0, |late| u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
            let no_result = || failed(number, "its report has no result of a workload".to_owned());
            let sample = match &self.agents[number] {
                Some(Line::Result(score, cpu)) => Some(sample::of_linux(&report, score, cpu, late_us)),
                _ => sample::of(&report, late_us),
            };
            samples.push(sample.ok_or_else(no_result)?);
        }
        Ok(samples)
    }

    fn status(&mut self, bench: &mut NativeBench<'_>, number: usize) -> Result<std::process::ExitStatus, CellEnd> {
        loop {
            let status = self.all[number].try_wait();
            match status.map_err(|error: io::Error| failed(number, format!("cannot be waited for: {error}")))? {
                Some(status) => return Ok(status),
                None if bench.is_interrupted() => return Err(CellEnd::Interrupted),
                None if Instant::now() > self.deadline => {
                    return Err(failed(number, "did not end within the time limit, and was ended".to_owned()));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// A guest whose output is closed, with what its monitor said.
    fn how_it_ended(&mut self, number: usize, what: &str) -> CellEnd {
        let said = self.all[number].last_words();
        let agent = match &self.agents[number] {
            Some(Line::Failed(why)) => format!("; the guest said: {why}"),
            _ => String::new(),
        };
        failed(number, format!("{what}{agent}; its monitor said: {said}"))
    }
}

fn failed(guest: usize, why: String) -> CellEnd {
    CellEnd::Failed(format!("guest {guest} {why}"))
}
