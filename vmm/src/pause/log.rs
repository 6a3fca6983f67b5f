// SPDX-License-Identifier: Apache-2.0
//! The decision log on its way to a file, and back through the policy (`vmm replay`).
//!
//! Invariant: a log that cannot be written ends the log, never the run; the summary says so.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use policy::pause::log::{LogError, Replayed, Writer, replay};
use policy::pause::{Decision, HostView, OutcomeEvent, PauseConfig, PauseEvent};
use policy::time::Nanos;

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
    /// Creates the file and writes the header.
    pub(super) fn create(path: &Path, view: &HostView, config: &PauseConfig) -> io::Result<Self> {
        let file = File::create(path)?;
        let mut buffer = Vec::with_capacity(2 * CHUNK);
        let writer = Writer::new(view, config, &mut buffer);
        Ok(Self { file, writer, buffer, failed: None })
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
            self.failed = self.file.write_all(&self.buffer).err();
            self.buffer.clear();
        }
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
    /// Its content.
    #[error("{}: {source}", .path.display())]
    Log {
        /// The path as given.
        path: PathBuf,
        /// What is wrong.
        source: LogError,
    },
}

/// Feeds a log back through the policy.
///
/// # Errors
/// [`ReplayError`].
pub fn replay_file(path: &Path) -> Result<Replayed, ReplayError> {
    let bytes = std::fs::read(path).map_err(|source| ReplayError::Read { path: path.to_owned(), source })?;
    replay(&bytes).map_err(|source| ReplayError::Log { path: path.to_owned(), source })
}
