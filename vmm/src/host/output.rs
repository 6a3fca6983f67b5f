// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "poll")]
//! Whether a descriptor takes output now, so that nobody has to block in a write to find out; and writers that give up
//! on a reader that stands still.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Most bytes that a pipe takes at once when it says that it takes any (pipe(7), `PIPE_BUF`).
pub const ATOMIC_BYTES: usize = libc::PIPE_BUF;

/// What a wait for a descriptor came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It takes output, or its reader is gone: a write does not wait.
    Takes,
    /// Not within the time.
    Busy,
    /// A signal came.
    Interrupted,
}

/// Waits until `fd` takes output, for at most `limit`.
#[must_use]
pub fn wait(fd: BorrowedFd<'_>, limit: Duration) -> Waited {
    let mut watched = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: poll reads and writes the one struct that it is given.
    match unsafe { libc::poll(&raw mut watched, 1, milliseconds) } {
        1 => Waited::Takes,
        0 => Waited::Busy,
        _ => Waited::Interrupted,
    }
}

/// A descriptor for what `fd` leads to. A pipe or a terminal is opened anew, for a terminal that takes a byte does not
/// say how many, and `O_NONBLOCK` on a duplicate would be seen by every process that has it too. Where that is not
/// possible, and for all else, it is a duplicate.
///
/// # Errors
/// The kernel's own: no descriptor is left.
pub fn open_again(fd: BorrowedFd<'_>) -> io::Result<File> {
    /// Opening this device makes another terminal (Documentation/admin-guide/devices.txt, 5 char).
    const PTMX: u64 = libc::makedev(5, 2);
    let duplicate = File::from(fd.try_clone_to_owned()?);
    let found = duplicate.metadata()?;
    if found.file_type().is_fifo() || (duplicate.is_terminal() && found.rdev() != PTMX) {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        if let Ok(again) = OpenOptions::new().write(true).custom_flags(flags).open(path) {
            return Ok(again);
        }
    }
    Ok(duplicate)
}

/// How long a reader may stand still before what is written at the end of a run is given up. The signals that end a
/// run are blocked by then, so nothing else would end the wait.
pub const READER_LIMIT: Duration = Duration::from_secs(10);

/// A writer that fails with [`io::ErrorKind::TimedOut`] when nothing is taken for a while.
#[derive(Debug)]
pub struct Bounded<F> {
    inner: F,
    limit: Duration,
}

impl<F: Write + AsFd> Bounded<F> {
    /// Writes to `inner`, each time waiting for at most `limit` until it takes anything.
    #[must_use]
    pub fn new(inner: F, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl<F: Write + AsFd> Write for Bounded<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let asked = Instant::now();
        loop {
            let left = self.limit.saturating_sub(asked.elapsed());
            if wait(self.inner.as_fd(), left) == Waited::Takes {
                match self.inner.write(&bytes[..bytes.len().min(ATOMIC_BYTES)]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    written => return written,
                }
            }
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its reader stands still"));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Tells a person something on stderr. A closed stderr has no reader to miss it, and one that stands still is waited
/// for only so long.
pub fn tell(text: &str) {
    if let Ok(file) = open_again(io::stderr().as_fd()) {
        let _ = Bounded::new(&file, READER_LIMIT).write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stands_still_is_given_up() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let mut bounded = Bounded::new(writer, Duration::from_millis(20));
        let error = bounded.write_all(&[0; 1 << 20]).expect_err("no pipe holds that much");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_full_pipe_takes_nothing_and_one_without_a_reader_fails_at_once() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut written = 0;
        while wait(writer.as_fd(), Duration::ZERO) == Waited::Takes {
            written += writer.write(&[0; ATOMIC_BYTES]).expect("there is room");
        }
        assert!(written >= ATOMIC_BYTES, "{written}");
        drop(reader);
        assert_eq!(wait(writer.as_fd(), Duration::ZERO), Waited::Takes);
        assert_eq!(writer.write(b"x").expect_err("nobody reads").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_opened_again_never_blocks_and_leaves_the_original_as_it_was() {
        let (_reader, mut writer) = io::pipe().expect("a pipe");
        let again = open_again(writer.as_fd()).expect("a descriptor");
        let more_than_a_pipe_holds = vec![0; 1 << 21];
        assert!((&again).write(&more_than_a_pipe_holds).expect("there is room") < more_than_a_pipe_holds.len());
        assert_eq!((&again).write(b"x").expect_err("it is full").kind(), io::ErrorKind::WouldBlock);
        // SAFETY: F_GETFL only looks.
        let flags = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & libc::O_NONBLOCK, 0);
        writer.flush().expect("nothing is kept");
    }
}
