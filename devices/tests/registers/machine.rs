// SPDX-License-Identifier: Apache-2.0
//! All devices on one bus, an output with moods, and a model that says what must come out and go in.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use devices::acpi_pm::{self, AcpiPm};
use devices::i8042::{self, I8042};
use devices::pvpanic::PvPanic;
use devices::serial::{self, Flushed, Serial, SerialEvents};
use devices::{Bus, BusBuilder, Interrupt, SystemEvent, SystemEvents, Width};

use crate::step::{Mood, Step};

const COM1: u64 = 0x3F8;

/// What may wait in the port, a bound that its documentation gives.
const MOST_WAITING_BYTES: u64 = 64 * 1024;

#[derive(Clone)]
struct Terminal(Arc<Mutex<(Mood, Vec<u8>)>>);

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        let taken = match state.0 {
            Mood::Ready => bytes.len(),
            Mood::Slow(limit) => {
                state.0 = Mood::Busy;
                limit.min(bytes.len())
            }
            Mood::Busy => return Err(ErrorKind::WouldBlock.into()),
            Mood::Interrupted => return Err(ErrorKind::Interrupted.into()),
            Mood::Gone => return Err(ErrorKind::BrokenPipe.into()),
        };
        state.1.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what devices tell.
#[derive(Default)]
struct Owner {
    system_events: AtomicU64,
    edges: AtomicU64,
    output_failed: AtomicU64,
}

impl SystemEvents for Owner {
    fn system_event(&self, _event: SystemEvent) {
        self.system_events.fetch_add(1, Ordering::Relaxed);
    }
}

/// A line that fails every third time.
struct FlakyLine(Arc<Owner>);

impl Interrupt for FlakyLine {
    fn raise(&self) -> io::Result<()> {
        match self.0.edges.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}

impl SerialEvents for Owner {
    fn output_failed(&self, _error: &io::Error) {
        self.output_failed.fetch_add(1, Ordering::Relaxed);
    }

    fn output_waiting(&self) {}

    fn input_room(&self) {}
}

/// What the data sheet says of the serial port's data register, and nothing of how the device does it.
#[derive(Default)]
struct Model {
    lcr: u8,
    mcr: u8,
    /// Loopback mixes the guest's own bytes with input, which the port's unit tests check.
    looped: bool,
    sent: Vec<u8>,
    input: VecDeque<u8>,
}

impl Model {
    fn latched(&self) -> bool {
        self.lcr & 0x80 != 0
    }

    fn write(&mut self, port: u64, value: u8) {
        match port.wrapping_sub(COM1) {
            serial::RBR_THR if self.latched() => {}
            serial::RBR_THR if self.mcr & 0x10 != 0 => {}
            serial::RBR_THR => self.sent.push(value),
            serial::LCR => self.lcr = value,
            serial::MCR => {
                self.mcr = value;
                self.looped |= value & 0x10 != 0;
            }
            _ => {}
        }
    }

    fn read(&mut self, port: u64, value: u8) {
        if port == COM1 && !self.latched() && !self.looped {
            assert_eq!(value, self.input.pop_front().unwrap_or(0), "input byte");
        }
    }
}

pub(crate) struct Machine {
    bus: Bus,
    port: Arc<Serial<FlakyLine, Terminal, Arc<Owner>>>,
    power: Arc<AcpiPm<Arc<Owner>, FlakyLine>>,
    terminal: Terminal,
    owner: Arc<Owner>,
    model: Model,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let owner = Arc::new(Owner::default());
        let terminal = Terminal(Arc::new(Mutex::new((Mood::Ready, Vec::new()))));
        let port = Arc::new(Serial::new(FlakyLine(owner.clone()), terminal.clone(), owner.clone()));
        let power = Arc::new(AcpiPm::new(owner.clone(), FlakyLine(owner.clone())));
        let keyboard = Arc::new(I8042::new(owner.clone()));
        let builder = BusBuilder::new().claim("COM1", COM1, serial::REGISTERS, port.clone()).unwrap();
        let builder = builder.claim("i8042 data", 0x60, 1, keyboard.clone()).unwrap();
        let builder = builder.claim_window("i8042 command", 0x64, 1, i8042::STATUS_COMMAND, keyboard).unwrap();
        let builder = builder.claim("ACPI power", 0x600, acpi_pm::REGISTERS, power.clone()).unwrap();
        let builder = builder.claim("pvpanic", 0x505, 1, Arc::new(PvPanic::new(owner.clone()))).unwrap();
        Self { bus: builder.build(), port, power, terminal, owner, model: Model::default() }
    }

    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Out { port, width, data } => {
                let data = data.expand();
                for_each_cycle(*port, *width, &data, |port, value| self.model.write(port, value));
                self.bus.write(*port, *width, &data);
            }
            Step::In { port, width, len } => self.read(*port, *width, *len),
            Step::Feed(data) => self.feed(&data.expand()),
            Step::Flush => {
                let waiting = self.port.flush() == Flushed::Waiting;
                assert_eq!(waiting, self.port.counters().waiting_bytes > 0);
            }
            Step::Press => {
                self.power.press_power_button();
                assert!(self.power.power_button_pending());
            }
            Step::Output(mood) => self.terminal.0.lock().unwrap().0 = *mood,
        }
    }

    fn read(&mut self, port: u64, width: Width, len: usize) {
        let mut data = vec![0; len];
        self.bus.read(port, width, &mut data);
        for_each_cycle(port, width, &data, |port, value| self.model.read(port, value));
        let unclaimed = |port| !matches!(port, 0x3F8..=0x3FF | 0x60 | 0x64 | 0x600..=0x603 | 0x505);
        for_each_cycle(port, width, &data, |port, value| assert!(!unclaimed(port) || value == 0xFF, "{port:#x}"));
    }

    fn feed(&mut self, data: &[u8]) {
        let taken = self.port.feed(data);
        self.model.input.extend(&data[..taken]);
    }

    pub(crate) fn check(&self) {
        let counters = self.port.counters();
        let accounted = counters.written_bytes + counters.dropped_bytes + counters.waiting_bytes;
        assert_eq!(accounted, self.model.sent.len() as u64, "every byte sent is written, dropped or waiting");
        assert!(counters.waiting_bytes <= MOST_WAITING_BYTES);
        let state = self.terminal.0.lock().unwrap();
        assert_eq!(counters.written_bytes, state.1.len() as u64, "every byte written once");
        if counters.dropped_bytes == 0 {
            assert_eq!(state.1, self.model.sent[..state.1.len()], "in order");
        } else {
            assert!(is_subsequence(&state.1, &self.model.sent), "in order, with gaps");
        }
        assert!(self.owner.output_failed.load(Ordering::Relaxed) <= 1, "a failure is told once");
    }

    /// With a reader who is there and quick, everything that was not dropped arrives.
    pub(crate) fn finish(mut self) {
        self.apply(&Step::Output(Mood::Ready));
        assert_eq!(self.port.flush(), Flushed::Done);
        self.check();
        if self.owner.output_failed.load(Ordering::Relaxed) == 0 {
            let counters = self.port.counters();
            assert_eq!(counters.written_bytes, self.model.sent.len() as u64 - counters.dropped_bytes);
        }
        // Everything that was fed can still be read.
        self.bus.write(COM1 + serial::LCR, Width::Byte, &[0]);
        self.bus.write(COM1 + serial::MCR, Width::Byte, &[0]);
        (self.model.lcr, self.model.mcr) = (0, 0);
        while !self.model.looped && !self.model.input.is_empty() {
            self.read(COM1, Width::Byte, 1);
        }
    }
}

/// The byte cycles of an access, in order: every element starts at `port` again.
fn for_each_cycle(port: u64, width: Width, data: &[u8], mut cycle: impl FnMut(u64, u8)) {
    for element in data.chunks(width.bytes()) {
        for (distance, value) in (0..).zip(element) {
            cycle(port + distance, *value);
        }
    }
}

fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}
