// SPDX-License-Identifier: Apache-2.0
//! The lab as a value: a host is described, a script is run on it, what it did comes back.
//!
//! Place in the flow: tests and `vmm lab` start here; shape, soundness, packages, archive, emulator and watchdog meet only
//! here. Invariant: everything about the request is checked before anything is fetched or started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::child::Guard;
use crate::error::LabError;
use crate::initramfs::{self, GivenFile, Task};
use crate::judgement::{Judgement, Tally, console_tail, judge, readable};
use crate::packages::{DebianKernel, Flavour, Series, Store};
use crate::qemu::{self, Emulator, Machine, PortFiles, Ports};
use crate::results::Results;
use crate::session::{self, Outcome, Stream};
use crate::shape::{Distance, HostShape, NumaLayout};
use crate::soundness::{self, Threading, Unsound};
use crate::tell::tell;
use crate::tsc;
use crate::watchdog::Limits;

const MEMORY_DEFAULT_MIB: u32 = 3072;
const DEADLINE_DEFAULT: Duration = Duration::from_secs(300);
/// One processor is up in 4 to 6 s on a quiet machine; with a load of 19 on two real processors it was 88 s.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// Ninety beats: no load seen so far slowed the lab host down by that much.
const SILENCE_LIMIT: Duration = Duration::from_secs(90);

/// What a run left behind.
#[derive(Debug)]
pub struct LabResult {
    /// Exit status of the script.
    pub status: u8,
    /// Kernel messages and the script's standard error, without carriage returns.
    pub console: String,
    /// The script's standard output, byte for byte.
    pub output: Vec<u8>,
    /// What the script left in `/results`, by name.
    pub files: BTreeMap<String, Vec<u8>>,
    /// How often the lab host was started.
    pub attempts: u32,
    /// How many of these ended because the lab host hung (its heartbeat stopped).
    pub lab_host_hung: u32,
    /// How many of these ended because the lab host died by itself.
    pub lab_host_died: u32,
    /// From the start of the emulator to the script's start, last attempt.
    pub ready_after: Duration,
    /// From the start of the emulator to its end, last attempt.
    pub took: Duration,
    /// Version of the emulator.
    pub qemu: String,
    /// `uname -r` of the lab host.
    pub kernel: String,
}

type Sink<'a> = Box<dyn FnMut(Stream, &[u8]) + 'a>;

/// An emulated host, described. Nothing happens before [`Lab::run`].
pub struct Lab<'a> {
    host: String,
    nodes: Option<u32>,
    distances: Vec<Distance>,
    memory_mib: u32,
    pause_filter: bool,
    counted_time: bool,
    threading: Option<Threading>,
    /// Program here, path there.
    programs: Vec<(PathBuf, String)>,
    files: Vec<GivenFile>,
    deadline: Duration,
    starts: Option<u32>,
    qemu: Option<PathBuf>,
    sink: Sink<'a>,
    stop: Box<dyn FnMut() -> bool + 'a>,
}

impl Default for Lab<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Lab<'a> {
    /// The sound setting: one processor, one node, 3 GiB, no pause filter, 300 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            host: "1".to_owned(),
            nodes: None,
            distances: Vec::new(),
            memory_mib: MEMORY_DEFAULT_MIB,
            pause_filter: false,
            counted_time: false,
            threading: None,
            programs: Vec::new(),
            files: Vec::new(),
            deadline: DEADLINE_DEFAULT,
            starts: None,
            qemu: None,
            sink: Box::new(|_, _| ()),
            stop: Box::new(|| false),
        }
    }

    /// Processors of the host: `N`, `SOCKETSxCORESxTHREADS` or `SOCKETSxDIESxCORESxTHREADS` ([`HostShape`]).
    #[must_use]
    pub fn host(mut self, shape: &str) -> Self {
        shape.clone_into(&mut self.host);
        self
    }

    /// NUMA nodes, processors and memory split evenly.
    #[must_use]
    pub fn numa(mut self, nodes: u32) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Distances between nodes; one holds for both directions unless the other is stated too, the rest is 20.
    #[must_use]
    pub fn distances(mut self, distances: &[Distance]) -> Self {
        distances.clone_into(&mut self.distances);
        self
    }

    /// Whether the processors have a pause filter, which KVM then uses: every PAUSE of a guest exits.
    #[must_use]
    pub fn pause_filter(mut self, on: bool) -> Self {
        self.pause_filter = on;
        self
    }

    /// Whether time on the host passes with the instructions it executes and not with ours. Runs of the same program then
    /// take the same time to a thousandth, however busy this machine is; a figure is work, counted in instructions. One
    /// processor only.
    #[must_use]
    pub fn counted_time(mut self, on: bool) -> Self {
        self.counted_time = on;
        self
    }

    /// Memory of the host in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// How the emulator runs its processors; without this, what is sound.
    #[must_use]
    pub fn threading(mut self, threading: Threading) -> Self {
        self.threading = Some(threading);
        self
    }

    /// A static program of this machine, to be found in the lab as `/bin/NAME`.
    #[must_use]
    pub fn program(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let destination = format!("/bin/{}", path.file_name().unwrap_or_default().to_string_lossy());
        self.program_at(path, &destination)
    }

    /// A static program of this machine, under a path of the caller's choice.
    #[must_use]
    pub fn program_at(mut self, path: impl Into<PathBuf>, destination: &str) -> Self {
        self.programs.push((path.into(), destination.to_owned()));
        self
    }

    /// A file in the lab, readable and executable.
    #[must_use]
    pub fn file(mut self, destination: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(GivenFile { path: destination.to_owned(), mode: 0o755, bytes: bytes.into() });
        self
    }

    /// Real time for the whole run, a repetition included; fetching packages does not count.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How often the lab host may be started in all, at least once; without this, as often as is sound. Only a lab host that
    /// hung or died by itself is started again, and [`LabResult::attempts`] counts it.
    #[must_use]
    pub fn starts(mut self, starts: u32) -> Self {
        self.starts = Some(starts.max(1));
        self
    }

    /// The emulator; without this, the one that `VMM_LAB_QEMU` names, the installed one, or Debian's.
    #[must_use]
    pub fn qemu(mut self, path: impl Into<PathBuf>) -> Self {
        self.qemu = Some(path.into());
        self
    }

    /// Called with what the lab host writes, as it arrives.
    #[must_use]
    pub fn on_stream(mut self, sink: impl FnMut(Stream, &[u8]) + 'a) -> Self {
        self.sink = Box::new(sink);
        self
    }

    /// Asked every now and then; when it says yes, the lab host is ended and the run is [`LabError::Asked`].
    #[must_use]
    pub fn stop_when(mut self, stop: impl FnMut() -> bool + 'a) -> Self {
        self.stop = Box::new(stop);
        self
    }

    /// Runs a shell script on the host. Its standard output comes back as `output`, what it leaves in `/results` as
    /// `files`; `/lab` belongs to the lab, everything else is free.
    pub fn run(mut self, script: &str) -> Result<LabResult, LabError> {
        let prepared = self.prepare(Task::Script(script))?;
        let starts = self.starts.unwrap_or_else(|| soundness::starts(prepared.machine.shape.cpus()));
        let started = Instant::now();
        let mut tally = Tally::default();
        loop {
            tally.attempts += 1;
            let left = self.deadline.saturating_sub(started.elapsed());
            let outcome = prepared.attempt(left, &mut *self.sink, &mut *self.stop)?;
            let failure = match judge(&outcome, &prepared.ports) {
                Judgement::Done(results) => return Ok(prepared.result(results, outcome, &tally)),
                Judgement::Damaged(error) => return Err(error.into()),
                Judgement::ScriptFailed => {
                    let console = console_tail(&outcome.console);
                    return Err(LabError::Deadline { seconds: self.deadline.as_secs(), console });
                }
                Judgement::Asked => return Err(LabError::Asked),
                Judgement::LabHostFailed(failure) => failure,
            };
            tally.count(&failure);
            if tally.attempts >= starts {
                let console = console_tail(&outcome.console);
                return Err(LabError::LabHostFailed { attempts: tally.attempts, why: failure.to_string(), console });
            }
            tell(format_args!(
                "lab: the lab host failed on start {} of {starts} ({failure}); it is started again",
                tally.attempts
            ));
        }
    }

    /// Whether such a host can be started here; fetches what is missing. Tests ask first, to be reported as ignored.
    pub fn available(&self) -> Result<(), LabError> {
        self.prepare(Task::Script("")).map(drop)
    }

    /// Gives a shell on the host, on this process's terminal, until it is left (`exit`, or Ctrl-A X). No deadline.
    pub fn shell(self) -> Result<(), LabError> {
        let prepared = self.prepare(Task::Shell)?;
        let arguments = prepared.arguments(&Ports::Terminal);
        let start = |source| LabError::System { what: "starting the emulator", source };
        let mut child = Guard::spawn(&mut prepared.emulator.command(&arguments)).map_err(start)?;
        child.wait().map_err(start)?;
        Ok(())
    }

    /// Checks the request, gets the packages, writes the initial file system.
    fn prepare(&self, task: Task<'_>) -> Result<Prepared, LabError> {
        let shape: HostShape = self.host.parse()?;
        let layout = NumaLayout::new(&shape, self.nodes.unwrap_or(1), self.memory_mib, &self.distances)?;
        let numa = self.nodes.is_some().then_some(layout);
        if shape.cpus() > 1 && self.threading == Some(Threading::Single) {
            return Err(Unsound::SharedThread { cpus: shape.cpus() }.into());
        }
        let mut files =
            self.programs.iter().map(|(path, place)| program(path, place)).collect::<Result<Vec<_>, _>>()?;
        files.extend(self.files.iter().cloned());

        let store = Store::open()?;
        let emulator = Emulator::find(self.qemu.as_deref(), shape.cpus(), &store)?;
        let threading = soundness::check(shape.cpus(), self.threading, emulator.version)?;
        let kernel = store.kernel(Series::V6_12, Flavour::Cloud)?;
        let initramfs = initramfs::lab(&store, &kernel, &files, task)?;
        let write = |source| LabError::System { what: "writing the lab's initial file system", source };
        let directory = tempfile::Builder::new().prefix("vmm-lab-").tempdir().map_err(write)?;
        std::fs::write(directory.path().join("initramfs"), initramfs).map_err(write)?;
        let ports = PortFiles::in_directory(directory.path());
        let Self { memory_mib, pause_filter, counted_time, .. } = *self;
        if counted_time && threading == Threading::Multi {
            return Err(Unsound::CountedTime { cpus: shape.cpus() }.into());
        }
        // The counter counts nanoseconds where these are counted instructions.
        let tsc_khz = tsc::stated_khz().filter(|_| !counted_time);
        let machine = Machine { shape, memory_mib, numa, pause_filter, counted_time, threading, tsc_khz };
        Ok(Prepared { machine, emulator, kernel, ports, directory })
    }
}

/// A static program as a file of the lab.
fn program(path: &Path, destination: &str) -> Result<GivenFile, LabError> {
    let bytes = initramfs::read(path)?;
    if crate::elf::wants_a_dynamic_linker(&bytes) {
        return Err(LabError::NotStatic { path: path.to_owned() });
    }
    Ok(GivenFile { path: destination.to_owned(), mode: 0o755, bytes })
}

/// A host that can be started.
struct Prepared {
    machine: Machine,
    emulator: Emulator,
    kernel: DebianKernel,
    ports: PortFiles,
    directory: TempDir,
}

impl Prepared {
    fn arguments(&self, ports: &Ports) -> Vec<std::ffi::OsString> {
        let initramfs = self.directory.path().join("initramfs");
        qemu::arguments(&self.machine, ports, &self.kernel.vmlinuz, &initramfs)
    }

    fn attempt(
        &self,
        deadline: Duration,
        sink: &mut dyn FnMut(Stream, &[u8]),
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, LabError> {
        let arguments = self.arguments(&Ports::Files(self.ports.clone()));
        let limits = Limits { deadline, boot: BOOT_LIMIT, silence: SILENCE_LIMIT };
        let files = [&self.ports.console, &self.ports.results, &self.ports.heartbeat, &self.ports.output];
        for file in files {
            // A first attempt has left none; a second one must not see what the first has written.
            let _ = std::fs::remove_file(file);
        }
        let mut command = self.emulator.command(&arguments);
        session::run(&mut command, &self.ports, limits, sink, stop)
            .map_err(|source| LabError::System { what: "running the emulator", source })
    }

    fn result(&self, results: Results, outcome: Outcome, tally: &Tally) -> LabResult {
        LabResult {
            status: results.status,
            console: readable(&outcome.console),
            output: outcome.output,
            files: results.files,
            attempts: tally.attempts,
            lab_host_hung: tally.hung,
            lab_host_died: tally.died,
            ready_after: outcome.ready_after.unwrap_or(outcome.took),
            took: outcome.took,
            qemu: self.emulator.version.to_string(),
            kernel: self.kernel.release.clone(),
        }
    }
}
