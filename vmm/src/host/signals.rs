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

/// Signals that nobody sends to ask for anything, and that would end the process all the same (signal(7)): the terminal
/// would stay raw, and no report be written. The real-time signals are among them. SIGUSR1 kicks vCPUs.
const FATAL: [libc::c_int; 8] = [
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// SIGTERM: press the power button, then stop.
    Graceful,
    /// Any other: stop now.
    Immediate,
}

/// The ending signals, readable. From here on they end nothing by themselves.
#[derive(Debug)]
pub struct EndingSignals(File);

impl EndingSignals {
    /// Blocks the ending signals for this thread and all it starts, and opens a descriptor that reports them. One that
    /// the caller of the process had ignored (nohup, a shell's background job) stays ignored; of those that only happen to
    /// end a process, one with a handler (a profiler's) is left to that. SIGPIPE and
    /// SIGXFSZ are ignored from here on: a closed stdout, or a file at its size limit, is an error value, not the end.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn block() -> io::Result<Self> {
        let mut set = empty_set();
        let asking = ENDING.into_iter().filter(|signal| action(*signal) != libc::SIG_IGN);
        let fatal = FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        for signal in asking.chain(fatal.filter(|signal| action(*signal) == libc::SIG_DFL)) {
            // SAFETY: sigaddset changes the set it is given.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: pthread_sigmask and signalfd read the set; a null old mask is allowed; the descriptor is new and owned
        // by the File from here on.
        unsafe {
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
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

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// What happens when a signal comes: `SIG_DFL`, `SIG_IGN`, or a handler.
fn action(signal: libc::c_int) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction fills the struct when it succeeds, and all zeroes are a value of it.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

impl AsRawFd for EndingSignals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise(signal: libc::c_int) {
        // SAFETY: raise sends the signal to the calling thread, which has blocked it.
        unsafe { libc::raise(signal) };
    }

    #[test]
    fn signals_are_told_apart_and_end_nothing_while_they_are_blocked() {
        // A shell has its background jobs ignore it, and these tests may be one.
        // SAFETY: no handler is installed; the signal is blocked below before it is raised.
        unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) };
        let mut signals = EndingSignals::block().unwrap();
        assert_eq!(signals.take().unwrap(), None);
        raise(libc::SIGTERM);
        assert_eq!(signals.take().unwrap(), Some(StopRequest::Graceful));
        raise(libc::SIGQUIT);
        assert_eq!(signals.take().unwrap(), Some(StopRequest::Immediate));
        assert_eq!(signals.take().unwrap(), None, "each is taken once");
        for signal in [libc::SIGUSR2, libc::SIGALRM, libc::SIGPWR, libc::SIGXCPU, libc::SIGRTMIN(), libc::SIGRTMAX()] {
            raise(signal);
            assert_eq!(signals.take().unwrap(), Some(StopRequest::Immediate), "signal {signal}");
        }
    }

    #[test]
    fn a_signal_that_the_caller_ignored_is_known() {
        // Nothing in this process ignores it, and SIGPIPE is ignored by the runtime of every Rust program.
        assert!(action(libc::SIGTERM) != libc::SIG_IGN && action(libc::SIGPIPE) == libc::SIG_IGN);
    }
}
