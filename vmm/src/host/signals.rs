// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "sigset_t calls, signalfd, and reading its records")]
//! The signals that end a run, or interrupt it for the sake of job control, as a file descriptor for the event loop.
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

/// The signals of job control that are to be heard of: the keyboard's stop, and going on after any stop.
const JOB_CONTROL: [libc::c_int; 2] = [libc::SIGTSTP, libc::SIGCONT];

/// The signals by which the kernel stops a background job that touches its terminal. Blocked, a read is an error (EIO)
/// instead, and a write is made (drivers/tty/tty_jobctrl.c, `__tty_check_change`).
const OF_A_BACKGROUND_JOB: [libc::c_int; 2] = [libc::SIGTTIN, libc::SIGTTOU];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGTERM: press the power button, then stop.
    PowerOff,
    /// SIGTSTP: give the terminal back and stand still.
    Suspend,
    /// SIGCONT: the process stood still and goes on, in the foreground or in the background.
    GoOn,
    /// Any other: stop now.
    Stop,
}

impl SignalRequest {
    /// Whether the run is to come to its end.
    #[must_use]
    pub const fn is_end(self) -> bool {
        match self {
            Self::PowerOff | Self::Stop => true,
            Self::Suspend | Self::GoOn => false,
        }
    }

    /// What the signal of this number asks for.
    const fn of(signal: libc::c_int) -> Self {
        match signal {
            libc::SIGTERM => Self::PowerOff,
            libc::SIGTSTP => Self::Suspend,
            libc::SIGCONT => Self::GoOn,
            _ => Self::Stop,
        }
    }
}

/// The ending signals, readable. From here on they end nothing by themselves.
#[derive(Debug)]
pub struct EndingSignals(File);

impl EndingSignals {
    /// Blocks the ending signals for this thread and all it starts, and opens a descriptor that reports them. One that
    /// the caller of the process had ignored (nohup, a shell's background job) stays ignored; of those that only happen to
    /// end a process, one with a handler (a profiler's) is left to that. SIGPIPE and
    /// SIGXFSZ are ignored from here on: a closed stdout, or a file at its size limit, is an error value, not the end. So
    /// is a terminal that belongs to another job.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn block() -> io::Result<Self> {
        let mut set = empty_set();
        let asking = ENDING.into_iter().chain(JOB_CONTROL).filter(|signal| action(*signal) != libc::SIG_IGN);
        let fatal = FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        for signal in asking.chain(fatal.filter(|signal| action(*signal) == libc::SIG_DFL)) {
            // SAFETY: sigaddset changes the set it is given.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        set_mask(libc::SIG_BLOCK, &set)?;
        set_mask(libc::SIG_BLOCK, &set_of(OF_A_BACKGROUND_JOB))?;
        // SAFETY: signalfd reads the set; the descriptor is new and owned by the File from here on.
        unsafe {
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
    pub fn take(&mut self) -> io::Result<Option<SignalRequest>> {
        let mut record = [0u8; size_of::<libc::signalfd_siginfo>()];
        match self.0.read(&mut record) {
            Ok(read) if read == record.len() => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // ssi_signo is the first field (signalfd(2)).
        let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
        Ok(Some(SignalRequest::of(number.cast_signed())))
    }

    /// Whether something long is to end now, whichever signal says so. Signals that cannot be read any more must not let it go
    /// on for ever either.
    pub fn end_it(&mut self) -> bool {
        !matches!(self.take(), Ok(None))
    }
}

/// Stands still as SIGTSTP has a process do, until SIGCONT; returns at once where nobody could send that (an orphaned
/// process group, setpgid(2)).
///
/// # Errors
/// The kernel's own.
pub fn stand_still() -> io::Result<()> {
    let stop = set_of([libc::SIGTSTP]);
    // SAFETY: raise sends the signal to the calling thread; its action is the default, or it would not have been taken.
    unsafe { libc::raise(libc::SIGTSTP) };
    // It is taken here, where it is let through.
    set_mask(libc::SIG_UNBLOCK, &stop)?;
    set_mask(libc::SIG_BLOCK, &stop)
}

/// Changes which signals this thread blocks.
fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: pthread_sigmask reads the set; a null old mask is allowed.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of<const N: usize>(signals: [libc::c_int; N]) -> libc::sigset_t {
    let mut set = empty_set();
    for signal in signals {
        // SAFETY: sigaddset changes the set it is given.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
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
        assert_eq!(signals.take().unwrap(), Some(SignalRequest::PowerOff));
        raise(libc::SIGQUIT);
        assert_eq!(signals.take().unwrap(), Some(SignalRequest::Stop));
        assert_eq!(signals.take().unwrap(), None, "each is taken once");
        raise(libc::SIGTSTP);
        assert_eq!(signals.take().unwrap(), Some(SignalRequest::Suspend));
        raise(libc::SIGCONT);
        assert_eq!(signals.take().unwrap(), Some(SignalRequest::GoOn));
        for signal in [libc::SIGUSR2, libc::SIGALRM, libc::SIGPWR, libc::SIGXCPU, libc::SIGRTMIN(), libc::SIGRTMAX()] {
            raise(signal);
            assert_eq!(signals.take().unwrap(), Some(SignalRequest::Stop), "signal {signal}");
        }
    }

    #[test]
    fn a_signal_that_the_caller_ignored_is_known() {
        // Nothing in this process ignores it, and SIGPIPE is ignored by the runtime of every Rust program.
        assert!(action(libc::SIGTERM) != libc::SIG_IGN && action(libc::SIGPIPE) == libc::SIG_IGN);
    }
}
