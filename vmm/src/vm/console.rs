// SPDX-License-Identifier: Apache-2.0
//! The guest's serial port towards the host: where its output goes, what is learnt from it on the way, and what it has
//! to tell the event loop.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use devices::interrupt::Interrupt;
use devices::serial::{Serial, SerialEvents};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::end::{EndNote, Outcome};
use super::observed::Observer;
use crate::config::SerialConfig;

/// The machine's serial port.
pub type Console = Serial<EventLine, ConsoleOutput, Arc<ConsoleEvents>>;

/// An interrupt line that KVM listens to (irqfd).
#[derive(Debug)]
pub struct EventLine(pub EventFd);

impl EventLine {
    /// A line that nobody listens to yet.
    ///
    /// # Errors
    /// The kernel's own: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map(Self)
    }
}

impl Interrupt for EventLine {
    fn raise(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Where the guest's output goes.
#[derive(Debug)]
pub struct ConsoleOutput {
    file: Option<File>,
    observer: Observer,
}

impl ConsoleOutput {
    /// Opens what `serial` names. Stdout is a duplicate of the descriptor, written to without a buffer of our own: the
    /// port hands over whole lines.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn open(serial: &SerialConfig, observer: Observer) -> io::Result<Self> {
        let file = match serial {
            SerialConfig::Stdio => Some(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            SerialConfig::File(path) => Some(File::create(path)?),
            SerialConfig::None => None,
        };
        Ok(Self { file, observer })
    }
}

impl Write for ConsoleOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.file {
            Some(file) => file.write(bytes)?,
            None => bytes.len(),
        };
        self.observer.bytes(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the port tells the event loop, without a system call for every byte.
#[derive(Debug)]
pub struct ConsoleEvents {
    end: Arc<EndNote>,
    wake: EventFd,
    flush_due: AtomicBool,
    room: AtomicBool,
}

impl ConsoleEvents {
    /// Nothing to tell yet; an output that fails ends the run through `end`.
    ///
    /// # Errors
    /// The kernel's own: no descriptor is left.
    pub fn new(end: Arc<EndNote>) -> io::Result<Self> {
        let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        Ok(Self { end, wake, flush_due: AtomicBool::new(false), room: AtomicBool::new(false) })
    }

    /// Readable when there is something to tell.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.wake
    }

    /// Whether output waits that wants a flush soon. Asking takes the note away.
    #[must_use]
    pub fn take_flush_due(&self) -> bool {
        self.flush_due.swap(false, Ordering::AcqRel)
    }

    /// Whether input can be fed again. Asking takes the note away.
    #[must_use]
    pub fn take_room(&self) -> bool {
        self.room.swap(false, Ordering::AcqRel)
    }

    fn tell(&self, flag: &AtomicBool) {
        if !flag.swap(true, Ordering::AcqRel) {
            // The counter of a non-blocking eventfd can only be full of earlier wake-ups.
            let _ = self.wake.write(1);
        }
    }
}

impl SerialEvents for ConsoleEvents {
    fn output_failed(&self, error: &io::Error) {
        self.end.note(Outcome::ConsoleLost { errno: error.raw_os_error().unwrap_or(libc::EIO) });
    }

    fn output_waiting(&self) {
        self.tell(&self.flush_due);
    }

    fn input_room(&self) {
        self.tell(&self.room);
    }
}
