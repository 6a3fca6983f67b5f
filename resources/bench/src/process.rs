// SPDX-License-Identifier: Apache-2.0
//! A program under measurement: started, timed by the bytes it says, ended.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A figure could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The monitor is not built.
    #[error("{}: is not there; build it first: cargo build --release", path.display())]
    NoMonitor {
        /// Where it should be.
        path: PathBuf,
    },
    /// No place for what is built.
    #[error("a directory for what is measured cannot be had: {source}")]
    Directory {
        /// The kernel's reason.
        source: io::Error,
    },
    /// A program does not start.
    #[error("{}: cannot be started: {source}", program.display())]
    Start {
        /// Which.
        program: OsString,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The compiler's own words are above.
    #[error("{}: does not build with cc", path.display())]
    Build {
        /// Which source.
        path: PathBuf,
    },
    /// The guest said less than it should.
    #[error("{}: ended before its guest had said all; run it by hand to see why", program.display())]
    Silent {
        /// Which program.
        program: OsString,
    },
    /// `/proc` tells less than it should.
    #[error("{path}: {what} is not told")]
    Proc {
        /// Which file.
        path: String,
        /// What was looked for.
        what: &'static str,
    },
}

/// A program whose guest has said its first byte. It is killed when this goes away.
pub(crate) struct Running {
    program: OsString,
    child: Child,
    output: ChildStdout,
    /// When the first byte was here.
    first_at: Instant,
    /// From just before the program was started to its guest's first byte.
    pub(crate) first_byte: Duration,
}

impl Running {
    /// Starts a program and waits for the first byte.
    pub(crate) fn start(mut command: Command) -> Result<Self, Failure> {
        let program = command.get_program().to_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = Instant::now();
        let spawned = command.spawn().map_err(|source| Failure::Start { program: program.clone(), source });
        let mut child = spawned?;
        let Some(mut output) = child.stdout.take() else { return Err(Failure::Silent { program }) };
        read_byte(&mut output).ok_or_else(|| Failure::Silent { program: program.clone() })?;
        let first_at = Instant::now();
        Ok(Self { program, child, output, first_at, first_byte: first_at - started })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From the first byte to the second.
    pub(crate) fn until_end(mut self) -> Result<Duration, Failure> {
        read_byte(&mut self.output).ok_or_else(|| Failure::Silent { program: self.program.clone() })?;
        Ok(self.first_at.elapsed())
    }
}

fn read_byte(output: &mut ChildStdout) -> Option<u8> {
    let mut byte = [0];
    output.read_exact(&mut byte).ok().map(|()| byte[0])
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; whatever it is, it shall not be there during the next run.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
