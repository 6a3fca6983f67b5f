// SPDX-License-Identifier: Apache-2.0
//! The decision log on its way to a file, and back through the policy (`vmm replay`).
//!
//! Invariant: a log that cannot be written ends the log, never the run; the summary says so.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use policy::pause::log::{LogError, MAGIC, Replayed, Writer};
use policy::pause::{Decision, HostView, OutcomeEvent, PauseConfig, PauseEvent};
use policy::time::Nanos;
use sim::driver::replay;

use crate::host::output::{Bounded, READER_LIMIT};

/// Bytes gathered before they are written.
const CHUNK: usize = 256 * 1024;

/// A decision log that is being written.
#[derive(Debug)]
pub(super) struct DecisionLog {
    file: File,
    writer: Writer,
    buffer: Vec<u8>,
    failed: Option<io::Error>,
}

impl DecisionLog {
    /// Creates the file and writes the header. `ENXIO` for a pipe that nobody reads: nothing waits for a reader, and no
    /// signal would end that.
    pub(super) fn create(path: &Path, view: &HostView, config: &PauseConfig) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let mut buffer = Vec::with_capacity(2 * CHUNK);
        let writer = Writer::new(view, config, &mut buffer);
        Ok(Self { file, writer, buffer, failed: None })
    }

    /// What follows is decided by these parameters.
    pub(super) fn decided_by(&mut self, config: &PauseConfig, now: Nanos) {
        if self.failed.is_none() {
            self.writer.parameters(config, now, &mut self.buffer);
        }
    }

    pub(super) fn decision(&mut self, event: &PauseEvent, view: &HostView, decision: &Decision, now: Nanos) {
        if self.failed.is_none() {
            self.writer.decision(event, view, decision, now, &mut self.buffer);
            self.write_if(CHUNK);
        }
    }

    pub(super) fn outcome(&mut self, event: &OutcomeEvent, now: Nanos) {
        if self.failed.is_none() {
            self.writer.outcome(event, now, &mut self.buffer);
            self.write_if(CHUNK);
        }
    }

    fn write_if(&mut self, least: usize) {
        if self.buffer.len() >= least {
            self.failed = self.write_out().err();
            self.buffer.clear();
        }
    }

    /// Under the driver's lock: the reader of a pipe that stands still costs a bounded time, and then the log.
    fn write_out(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            return (&self.file).write_all(&self.buffer);
        }
        Bounded::new(&self.file, READER_LIMIT).write_all(&self.buffer)
    }

    /// Writes what is left; the error that ended the log, if one did.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_if(1);
        self.failed.map_or(Ok(()), Err)
    }
}

/// A log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file.
    #[error("{}: cannot be read: {source}; name a file written with --decision-log", .path.display())]
    Read {
        /// The path as given.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A directory, device, pipe or socket.
    #[error("{}: is not a regular file; name a file written with --decision-log", .path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// More than the policy can be fed from memory.
    #[error("{}: is longer than {MOST_BYTES} bytes; replay the log of a shorter run", .path.display())]
    TooLong {
        /// The path as given.
        path: PathBuf,
    },
    /// Its content.
    #[error("{}: {source}", .path.display())]
    Log {
        /// The path as given.
        path: PathBuf,
        /// What is wrong.
        source: LogError,
    },
}

/// Longest log that is replayed: minutes of decisions in every microsecond.
const MOST_BYTES: u64 = 4 << 30;

/// Feeds a log through the policy again, the way the simulator asks it: the one path that both homes share but for the
/// mechanisms.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_file(path: &Path) -> Result<Replayed, ReplayError> {
    let bytes = read_log(path)?;
    replay(&bytes).map_err(|source| ReplayError::Log { path: path.to_owned(), source })
}

/// Reads a log, its beginning first: what is none is not read to its end, which need not be near.
fn read_log(path: &Path) -> Result<Vec<u8>, ReplayError> {
    let unreadable = |source| ReplayError::Read { path: path.to_owned(), source };
    // Without waiting for the writer of a pipe, which is refused then.
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(ReplayError::NotAFile { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes != MAGIC {
        return Err(ReplayError::Log { path: path.to_owned(), source: LogError::NotALog });
    }
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ReplayError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_is_refused_without_being_read() {
        for path in ["/dev/zero", "/"] {
            assert!(matches!(replay_file(Path::new(path)), Err(ReplayError::NotAFile { .. })), "{path}");
        }
        let executable = std::env::current_exe().expect("a test is a file");
        let refused = replay_file(&executable).expect_err("an executable is no log");
        assert!(matches!(refused, ReplayError::Log { source: LogError::NotALog, .. }), "{refused}");
    }

    #[test]
    fn a_log_into_a_pipe_that_nobody_reads_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("vmm-log-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        let refused = DecisionLog::create(&path, &HostView::new(2, Vec::new(), 2), &PauseConfig::default());
        let replayed = replay_file(&path);
        std::fs::remove_file(&path).expect("it was made");
        assert_eq!(refused.map(drop).expect_err("nobody reads").raw_os_error(), Some(libc::ENXIO));
        assert!(matches!(replayed, Err(ReplayError::NotAFile { .. })));
    }
}
