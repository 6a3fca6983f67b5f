// SPDX-License-Identifier: Apache-2.0
//! The guest's serial port towards the host: where its output goes, what is learnt from it on the way, and what it has
//! to tell the event loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devices::bus::{Device, Width};
use devices::interrupt::Interrupt;
use devices::serial::{self, Serial, SerialEvents};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::end::{EndNote, Outcome};
use super::observed::Observer;
use crate::config::SerialConfig;
use crate::host::output::{self, ATOMIC_BYTES, Waited};

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

/// How long a wait for the output lasts before it is looked whether there is still a reason to wait.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What the console writes to. Never waited for in a write, for the writer holds the port's lock and the event loop
/// needs it too; who sends too fast waits in [`Sink::keep_pace`].
#[derive(Debug)]
pub struct Sink {
    file: File,
    behind: AtomicBool,
    hurry: AtomicBool,
}

impl Sink {
    /// A sink that writes to `file`.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file, behind: AtomicBool::new(false), hurry: AtomicBool::new(false) }
    }

    /// From now on nobody waits: the operator wants the run to end, and what is not taken at once is lost.
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Release);
    }

    /// Whether [`Sink::hurry`] was called.
    #[must_use]
    pub fn is_hurried(&self) -> bool {
        self.hurry.load(Ordering::Acquire)
    }

    /// Waits while it is behind. A signal, as a kick is one, and [`Sink::hurry`] end the wait.
    pub fn keep_pace(&self) {
        while self.behind.load(Ordering::Acquire) && !self.is_hurried() {
            if self.await_room() == Waited::Interrupted {
                return;
            }
        }
    }

    /// Waits until it takes output again, and not for long.
    pub fn await_room(&self) -> Waited {
        let waited = output::wait(self.file.as_fd(), LOOK_AGAIN_AFTER);
        if waited == Waited::Takes {
            self.behind.store(false, Ordering::Release);
        }
        waited
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match output::wait(self.file.as_fd(), Duration::ZERO) {
            Waited::Takes => (&self.file).write(&bytes[..bytes.len().min(ATOMIC_BYTES)]),
            Waited::Busy | Waited::Interrupted => Err(io::ErrorKind::WouldBlock.into()),
        };
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.behind.store(true, Ordering::Release);
        }
        written
    }
}

/// The serial port as the vCPUs reach it: one that sends more than the output takes waits, and holds no lock.
pub struct PacedConsole {
    console: Arc<Console>,
    sink: Option<Arc<Sink>>,
}

impl PacedConsole {
    /// The port, with what its output goes to.
    #[must_use]
    pub fn new(console: Arc<Console>, sink: Option<Arc<Sink>>) -> Self {
        Self { console, sink }
    }

    fn keep_pace(&self, offset: u64) {
        if let Some(sink) = self.sink.as_ref().filter(|_| offset == serial::RBR_THR) {
            sink.keep_pace();
        }
    }
}

impl Device for PacedConsole {
    fn read(&self, offset: u64, data: &mut [u8]) {
        Device::read(&*self.console, offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        self.keep_pace(offset);
        Device::write(&*self.console, offset, data);
    }

    fn write_string(&self, offset: u64, width: Width, data: &[u8]) {
        self.keep_pace(offset);
        Device::write_string(&*self.console, offset, width, data);
    }
}

/// Where the guest's output goes.
#[derive(Debug)]
pub struct ConsoleOutput {
    sink: Option<Arc<Sink>>,
    observer: Observer,
}

impl ConsoleOutput {
    /// Opens what `serial` names; a file begins anew unless the output `goes_on` behind what is there. Stdout has a descriptor of its own, written to without a buffer of our own: the
    /// port hands over whole lines.
    ///
    /// # Errors
    /// The kernel's own; `ENXIO` for a pipe that nobody reads.
    pub fn open(serial: &SerialConfig, goes_on: bool, observer: Observer) -> io::Result<Self> {
        let file = match serial {
            SerialConfig::Stdio => Some(output::open_again(io::stdout().as_fd())?),
            // Without waiting: opening a named pipe would wait for a reader, and no signal would end that.
            SerialConfig::File(path) => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).append(goes_on).truncate(!goes_on);
                Some(options.custom_flags(libc::O_NONBLOCK).open(path)?)
            }
            SerialConfig::None => None,
        };
        Ok(Self { sink: file.map(|file| Arc::new(Sink::new(file))), observer })
    }

    /// What it writes to, for those who wait for it; none if the output is lost.
    #[must_use]
    pub fn sink(&self) -> Option<Arc<Sink>> {
        self.sink.clone()
    }
}

impl Write for ConsoleOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &self.sink {
            Some(sink) => sink.write(bytes)?,
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::thread;

    use super::*;
    use crate::vm::observed::SharedObserved;

    #[test]
    fn a_reader_that_stands_still_holds_up_the_sender_and_nobody_else() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let sink = Arc::new(Sink::new(File::from(OwnedFd::from(writer))));
        let observer = Observer::new(SharedObserved::default());
        let mut output = ConsoleOutput { sink: Some(Arc::clone(&sink)), observer };
        let mut sent = 0;
        let full = loop {
            match output.write(&[b'x'; 10_000]) {
                Ok(bytes) => sent += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let waiting = thread::spawn({
            let sink = Arc::clone(&sink);
            move || sink.keep_pace()
        });
        reader.read_exact(&mut vec![0; sent]).expect("what was sent");
        waiting.join().expect("the wait ends when the reader goes on");
        assert!(!sink.behind.load(Ordering::Acquire));
    }

    #[test]
    fn a_hurry_ends_the_wait_for_a_reader_that_never_comes_back() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let sink = Sink::new(File::from(OwnedFd::from(writer)));
        while sink.write(&[0; ATOMIC_BYTES]).is_ok() {}
        sink.hurry();
        sink.keep_pace();
        assert!(sink.behind.load(Ordering::Acquire), "the reader is where it was");
    }
}
