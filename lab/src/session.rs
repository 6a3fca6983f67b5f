// SPDX-License-Identifier: Apache-2.0
//! One attempt: starts the emulator, passes on what it writes, watches it, and ends it.
//!
//! Place in the flow: [`crate::host::Lab`] hands in a command and the files its ports end in; the outcome comes back.
//! Invariant: when this returns, the emulator has ended and everything it wrote has been passed on.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::child::Guard;
use crate::qemu::PortFiles;
use crate::watchdog::{Limits, Verdict, Watchdog};

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Which stream of the lab host some bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Kernel messages, and the standard error of what runs inside.
    Console,
    /// The standard output of what runs inside, unchanged.
    Output,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The emulator ended by itself.
    Ended(ExitStatus),
    /// The watchdog ended it; never [`Verdict::Alive`].
    Stopped(Verdict),
    /// Whoever runs it wanted an end.
    Asked,
}

/// What is known after an attempt.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) console: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// From the start of the emulator to the first heartbeat.
    pub(crate) ready_after: Option<Duration>,
    /// From the start of the emulator to its end.
    pub(crate) took: Duration,
}

/// Runs the command to its end or to the end of the watchdog's patience, or until `stop` says so. `sink` gets what arrives, as
/// it arrives.
pub(crate) fn run(
    command: &mut Command,
    ports: &PortFiles,
    limits: Limits,
    sink: &mut dyn FnMut(Stream, &[u8]),
    stop: &mut dyn FnMut() -> bool,
) -> io::Result<Outcome> {
    let mut console = Tail::new(&ports.console);
    let mut output = Tail::new(&ports.output);
    let mut heartbeat = Tail::new(&ports.heartbeat);
    let mut watchdog = Watchdog::new(limits);
    let mut ready_after = None;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&ports.complaints)?);
    let started = Instant::now();
    let mut child = Guard::spawn(command)?;
    let end = loop {
        let ended = child.ended()?;
        let now = started.elapsed();
        heartbeat.read()?;
        if ready_after.is_none() && !heartbeat.bytes.is_empty() {
            ready_after = Some(now);
        }
        sink(Stream::Console, console.read()?);
        sink(Stream::Output, output.read()?);
        if let Some(status) = ended {
            break End::Ended(status);
        }
        if stop() {
            break End::Asked;
        }
        match watchdog.look(now, heartbeat.lines()) {
            Verdict::Alive => thread::sleep(LOOK_EVERY),
            verdict => break End::Stopped(verdict),
        }
    };
    let took = started.elapsed();
    drop(child);
    sink(Stream::Console, console.read()?);
    sink(Stream::Output, output.read()?);
    Ok(Outcome { end, console: console.bytes, output: output.bytes, ready_after, took })
}

/// Reads a file that another process is still writing.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    bytes: Vec<u8>,
}

impl Tail {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, bytes: Vec::new() }
    }

    /// Whole lines so far.
    fn lines(&self) -> u64 {
        self.bytes.iter().filter(|byte| **byte == b'\n').count() as u64
    }

    /// What is new since the last call. A file that is not there yet holds nothing.
    fn read(&mut self) -> io::Result<&[u8]> {
        let before = self.bytes.len();
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(&[]),
                Err(error) => return Err(error),
            }
        }
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut self.bytes)?;
        }
        Ok(&self.bytes[before..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child;

    const LIMITS: Limits = Limits {
        deadline: Duration::from_secs(20),
        boot: Duration::from_secs(10),
        silence: Duration::from_millis(300),
    };

    /// Runs a shell script in the place of the emulator; it finds the port files in its working directory.
    fn fake(script: &str, limits: Limits) -> (Outcome, Vec<(Stream, Vec<u8>)>) {
        let directory = tempfile::tempdir().unwrap();
        let ports = PortFiles::in_directory(directory.path());
        let mut seen = Vec::new();
        let mut sink = |stream, bytes: &[u8]| {
            if !bytes.is_empty() {
                seen.push((stream, bytes.to_vec()));
            }
        };
        let mut command = child::bound_to_us("sh");
        let outcome =
            run(command.args(["-c", script]).current_dir(&directory), &ports, limits, &mut sink, &mut || false)
                .unwrap();
        (outcome, seen)
    }

    #[test]
    fn both_streams_are_passed_on_whole_and_the_end_is_told() {
        let (outcome, seen) = fake("echo ready >heartbeat; printf a >console; printf b >output; exit 3", LIMITS);
        assert!(matches!(outcome.end, End::Ended(status) if status.code() == Some(3)));
        assert_eq!((outcome.console.as_slice(), outcome.output.as_slice()), (&b"a"[..], &b"b"[..]));
        assert_eq!(seen, [(Stream::Console, b"a".to_vec()), (Stream::Output, b"b".to_vec())]);
        assert!(outcome.ready_after.is_some());
    }

    #[test]
    fn a_heartbeat_that_stops_is_a_hung_lab_host() {
        let (outcome, _) = fake("echo ready >heartbeat; sleep 60", LIMITS);
        assert!(matches!(outcome.end, End::Stopped(Verdict::Silent { .. })), "{:?}", outcome.end);
    }

    #[test]
    fn a_heart_that_beats_until_the_deadline_is_a_failed_guest() {
        let limits = Limits { deadline: Duration::from_millis(700), silence: LIMITS.deadline, ..LIMITS };
        let (outcome, _) =
            fake("for beat in 1 2 3 4 5 6 7 8 9; do echo alive >>heartbeat; sleep 0.1; done; sleep 9", limits);
        assert_eq!(outcome.end, End::Stopped(Verdict::DeadlinePassed));
        assert!(outcome.took < Duration::from_secs(10));
    }

    #[test]
    fn whoever_runs_it_can_end_it() {
        let directory = tempfile::tempdir().unwrap();
        let ports = PortFiles::in_directory(directory.path());
        let mut looks = 0;
        let mut stop = || {
            looks += 1;
            looks > 3
        };
        let mut command = child::bound_to_us("sh");
        command.args(["-c", "sleep 60"]).current_dir(&directory);
        let outcome = run(&mut command, &ports, LIMITS, &mut |_, _| (), &mut stop).unwrap();
        assert_eq!(outcome.end, End::Asked);
    }

    #[test]
    fn a_lab_host_without_any_beat_was_never_ready() {
        let limits = Limits { boot: Duration::from_millis(200), ..LIMITS };
        let (outcome, _) = fake("sleep 60", limits);
        assert!(matches!(outcome.end, End::Stopped(Verdict::NeverReady { .. })), "{:?}", outcome.end);
        assert_eq!(outcome.ready_after, None);
    }

    #[test]
    fn the_emulator_does_not_outlive_the_attempt() {
        let limits = Limits { deadline: Duration::from_millis(200), ..LIMITS };
        let (outcome, _) = fake("echo $$ >console; exec sleep 60", limits);
        let pid = String::from_utf8(outcome.console).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {} is left", pid.trim());
    }
}
