// SPDX-License-Identifier: Apache-2.0
//! The terminal while `vmm top` has it: its second screen, no cursor, raw keys; given back on every way out.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::keys::{self, Key};
use crate::client::CallError;
use crate::host::signals::EndingSignals;
use crate::host::terminal::{self, RawTerminal};

/// The second screen, without a cursor (xterm, DEC private modes 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What ended a wait.
pub(super) enum Woken {
    /// The time has passed.
    Due,
    /// Somebody typed.
    Keys(Vec<Key>),
    /// A signal asks for the end, or the terminal is gone.
    Ended,
}

/// The terminal.
pub(super) struct Screen {
    epoll: Epoll,
    signals: EndingSignals,
    /// Stdin, without a buffer that would hide keys from the wait.
    keyboard: File,
    coloured: bool,
    /// Put back behind [`LEAVE`].
    _raw: RawTerminal,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none, or it belongs to another job.
    pub(super) fn enter() -> Result<Self, CallError> {
        if !io::stdout().is_terminal() || !terminal::stdin_is_terminal() || terminal::stdin_is_of_another_job() {
            return Err(CallError::NoTerminal);
        }
        let signals = EndingSignals::block().map_err(CallError::Terminal)?;
        let epoll = watch([libc::STDIN_FILENO, signals.as_raw_fd()]).map_err(CallError::Terminal)?;
        let keyboard = io::stdin().as_fd().try_clone_to_owned().map_err(CallError::Terminal)?.into();
        let raw = RawTerminal::enter().map_err(CallError::Terminal)?.ok_or(CallError::NoTerminal)?;
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let screen = Self { epoll, signals, keyboard, coloured, _raw: raw };
        say(ENTER).map_err(CallError::Output)?;
        Ok(screen)
    }

    /// Whether colours are wanted (no-color.org).
    pub(super) const fn coloured(&self) -> bool {
        self.coloured
    }

    /// Lines and columns.
    pub(super) fn size(&self) -> (usize, usize) {
        terminal::size().unwrap_or((24, 80))
    }

    /// Shows a page in place of the one before.
    pub(super) fn show(&self, lines: &[String]) -> Result<(), CallError> {
        let page = lines.join("\x1b[K\r\n");
        // No line feed behind the last one: it would scroll.
        say(&format!("\x1b[H{page}\x1b[K\x1b[J")).map_err(CallError::Output)
    }

    /// Waits for a key, a signal, or `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Woken, CallError> {
        let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        let mut events = [EpollEvent::default(); 2];
        let count = match self.epoll.wait(milliseconds, &mut events) {
            Ok(0) => return Ok(Woken::Due),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(CallError::Terminal(error)),
            Err(_) => 0,
            Ok(count) => count,
        };
        // A signal is not overtaken by keys.
        if matches!(self.signals.take(), Ok(Some(_))) {
            return Ok(Woken::Ended);
        }
        if !events[..count].iter().any(|event| event.fd() == libc::STDIN_FILENO) {
            return Ok(Woken::Keys(Vec::new()));
        }
        let mut bytes = [0; 256];
        match self.keyboard.read(&mut bytes) {
            Ok(read @ 1..) => Ok(Woken::Keys(keys::keys(&bytes[..read]))),
            Ok(0) | Err(_) => Ok(Woken::Ended),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone has nothing to be given back.
        let _ = say(LEAVE);
    }
}

fn watch(descriptors: [RawFd; 2]) -> io::Result<Epoll> {
    let epoll = Epoll::new()?;
    for descriptor in descriptors {
        let event = EpollEvent::new(EventSet::IN, u64::from(descriptor.unsigned_abs()));
        epoll.ctl(ControlOperation::Add, descriptor, event)?;
    }
    Ok(epoll)
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
