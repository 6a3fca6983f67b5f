// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "poll")]
//! Whether a descriptor takes output now, so that nobody has to block in a write to find out.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::os::fd::AsFd;

    use super::*;

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
}
