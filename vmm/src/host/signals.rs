// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "sigset_t calls, signalfd, and reading its records")]
//! The signals that end a run, as a file descriptor for the event loop.
//!
//! They are blocked before the first thread is started, so every thread inherits the mask and none is interrupted by
//! them.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// The signals that ask the monitor to end.
const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// SIGTERM: press the power button, then stop.
    Graceful,
    /// SIGINT, SIGHUP, SIGQUIT: stop now.
    Immediate,
}

/// The ending signals, readable.
#[derive(Debug)]
pub struct EndingSignals(File);

impl EndingSignals {
    /// Blocks the ending signals for this thread and all it starts, and opens a descriptor that reports them. SIGPIPE
    /// is ignored from here on: a closed stdout is an error value, not the end.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set; sigaddset, pthread_sigmask and signalfd read or change it; a null
        // old mask is allowed; the descriptor is new and owned by the File from here on.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in ENDING {
                libc::sigaddset(&raw mut set, signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(File::from_raw_fd(fd))),
            }
        }
    }

    /// The next signal that came, if one did.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn take(&mut self) -> io::Result<Option<StopRequest>> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        match self.0.read(&mut record) {
            Ok(read) if read == record.len() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // ssi_signo is the first field (signalfd(2)).
        let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
        Ok(Some(if number == libc::SIGTERM.cast_unsigned() { StopRequest::Graceful } else { StopRequest::Immediate }))
    }
}

impl AsRawFd for EndingSignals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
