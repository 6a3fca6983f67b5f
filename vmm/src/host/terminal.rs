// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "tcgetattr, tcsetattr, tcgetpgrp, TIOCGWINSZ and isatty")]
//! Stdin as the guest's keyboard: raw while the guest runs and the terminal is ours, as it was on every way out.
//!
//! The old settings live in one static place, so that the panic hook (a panic aborts, no destructor runs) can put them
//! back as well. Invariant: while another job has the terminal (`&`, `bg`), nothing reads it or changes its settings.

use std::io;
use std::mem::{self, MaybeUninit};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

/// The settings to go back to, while the terminal is raw.
static SAVED: Mutex<Option<libc::termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

/// Whether stdin is a terminal.
#[must_use]
pub fn stdin_is_terminal() -> bool {
    // SAFETY: isatty only looks at the descriptor.
    unsafe { libc::isatty(libc::STDIN_FILENO) == 1 }
}

/// Lines and columns of the terminal that stdout is; `None` if it is none, or does not know.
#[must_use]
pub fn size() -> Option<(usize, usize)> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: the ioctl fills the struct when it succeeds, and all zeroes are a value of it.
    let size = unsafe {
        if libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, size.as_mut_ptr()) != 0 {
            return None;
        }
        size.assume_init()
    };
    (size.ws_row > 0 && size.ws_col > 0).then(|| (size.ws_row.into(), size.ws_col.into()))
}

/// Whether stdin is a terminal on which another job is in the foreground: what is typed there is not for us, and its
/// settings are those of that job.
#[must_use]
pub fn stdin_is_of_another_job() -> bool {
    // SAFETY: both only ask the kernel for a number.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(libc::STDIN_FILENO), libc::getpgrp()) };
    is_of_another_job(foreground, own)
}

/// `foreground` is -1 for what is no terminal, or none that controls this process: job control does not touch that.
fn is_of_another_job(foreground: libc::pid_t, own: libc::pid_t) -> bool {
    foreground != -1 && foreground != own
}

/// The terminal on stdin, as far as job control lets this process have it.
#[derive(Debug)]
pub struct Terminal {
    raw: Option<RawTerminal>,
}

impl Terminal {
    /// Stdin, made raw unless another job has it; `None` if it is no terminal.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn on_stdin() -> io::Result<Option<Self>> {
        if !stdin_is_terminal() {
            return Ok(None);
        }
        let raw = if stdin_is_of_another_job() { None } else { RawTerminal::enter()? };
        Ok(Some(Self { raw }))
    }

    /// Whether what is typed is for the guest, as of the last look.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.raw.is_some()
    }

    /// Looks who has it: makes it raw if it has come to us, leaves it alone if it has gone to another job.
    pub fn look(&mut self) {
        if stdin_is_of_another_job() {
            self.raw = None;
        } else if self.raw.is_none() {
            // One that cannot be made raw is not read; the next look tries again.
            self.raw = RawTerminal::enter().ok().flatten();
        }
    }

    /// Gives it back as it was.
    pub fn give_back(&mut self) {
        self.raw = None;
    }

    /// Looks again after this process stood still: whoever had the terminal meanwhile has made it what it is.
    pub fn look_anew(&mut self) {
        if let Some(raw) = self.raw.take() {
            mem::forget(raw);
        }
        self.look();
    }
}

/// While this lives, stdin is raw: keys reach the guest one by one, without echo, Ctrl-C included.
#[derive(Debug)]
pub struct RawTerminal(());

impl RawTerminal {
    /// Makes stdin raw, if it is a terminal; `None` if it is not. What it is put back to is what it was when it was made
    /// raw first, unless it has been put back since.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn enter() -> io::Result<Option<Self>> {
        if !stdin_is_terminal() {
            return Ok(None);
        }
        let mut settings = MaybeUninit::uninit();
        // SAFETY: tcgetattr fills the struct when it succeeds.
        let settings = unsafe {
            if libc::tcgetattr(libc::STDIN_FILENO, settings.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            settings.assume_init()
        };
        SAVED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(settings);
        PANIC_HOOK.call_once(restore_on_panic);
        let mut raw = settings;
        // SAFETY: cfmakeraw changes the struct it is given.
        unsafe { libc::cfmakeraw(&raw mut raw) };
        // Output keeps its newline translation: the guest's console and our own messages share the screen.
        raw.c_oflag = settings.c_oflag;
        set(&raw)?;
        Ok(Some(Self(())))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts stdin back to what it was before [`RawTerminal::enter`]; nothing if it is not raw, or if another job has it, which
/// has settings of its own.
pub fn restore() {
    if stdin_is_of_another_job() {
        return;
    }
    // A panic while the lock is held cannot be waited for.
    let Ok(mut saved) = SAVED.try_lock() else { return };
    if let Some(settings) = saved.take() {
        // Nothing is left to be done about an error: the terminal is gone.
        let _ = set(&settings);
    }
}

fn restore_on_panic() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        previous(info);
    }));
}

fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: tcsetattr reads the struct it is given.
    match unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, settings) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a key sequence means, once the escape key is taken out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// For the guest.
    Guest(u8),
    /// Ctrl-A x: end the guest at once, as in QEMU and kvmtool.
    Quit,
    /// Nothing to do yet, or a sequence without a meaning.
    Swallowed,
}

/// Finds the escape sequences in what is typed: Ctrl-A x ends the guest, Ctrl-A Ctrl-A is one Ctrl-A for the guest.
#[derive(Debug, Default)]
pub struct EscapeKeys {
    after_escape: bool,
}

impl EscapeKeys {
    /// Ctrl-A.
    pub const ESCAPE: u8 = 0x01;

    /// Takes the next byte that was typed.
    pub fn feed(&mut self, byte: u8) -> Key {
        match (self.after_escape, byte) {
            (false, Self::ESCAPE) => {
                self.after_escape = true;
                Key::Swallowed
            }
            (false, byte) => Key::Guest(byte),
            (true, byte) => {
                self.after_escape = false;
                match byte {
                    b'x' | b'X' => Key::Quit,
                    Self::ESCAPE => Key::Guest(Self::ESCAPE),
                    _ => Key::Swallowed,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_in_the_background_is_known() {
        assert!(is_of_another_job(100, 200));
        assert!(is_of_another_job(0, 200), "a job outside this PID namespace");
        assert!(!is_of_another_job(200, 200), "in the foreground");
        assert!(!is_of_another_job(-1, 200), "no terminal of this session");
    }

    #[test]
    fn only_the_escape_sequences_are_taken_out() {
        let mut keys = EscapeKeys::default();
        let typed = [b'a', 1, 1, 1, b'z', b'b', 1, b'x'].map(|byte| keys.feed(byte));
        use Key::{Guest, Quit, Swallowed};
        assert_eq!(typed, [Guest(b'a'), Swallowed, Guest(1), Swallowed, Swallowed, Guest(b'b'), Swallowed, Quit]);
    }
}
