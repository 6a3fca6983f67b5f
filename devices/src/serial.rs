// SPDX-License-Identifier: Apache-2.0
//! Serial port: a 16550A (National Semiconductor PC16550D data sheet, June 1995, section 8) between the guest's driver,
//! an output, and whoever feeds it input.
//!
//! The register model is vm-superio's. Added here: one write to the output per line or string instead of one per byte,
//! back-pressure both ways, and the priority of interrupts in the IIR. Invariants: a transmitted byte is written once,
//! waits (bounded), or is counted as dropped; input is never lost, what the FIFO has no room for stays with the feeder;
//! an output that fails neither stops the guest nor is tried again.
//!
//! When output goes out: at the end of a `rep outsb`; at a newline or 1024 bytes; when the driver turns to something
//! else (writes the IER, as Linux does after every message; reads input; polls the LSR without sending); when input
//! arrives; and when asked ([`Serial::flush`], for which [`SerialEvents::output_waiting`] says when to set a timer).

mod transmit;

use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vm_superio::Trigger;
use vm_superio::serial::NoEvents;

use crate::bus::ByteRegisters;
use crate::interrupt::Interrupt;
use transmit::Transmit;

/// Receiver buffer (read) and transmitter holding register (write); with DLAB set the divisor latch, low byte.
pub const RBR_THR: u64 = 0;
/// Interrupt enable register; with DLAB set the divisor latch, high byte.
pub const IER: u64 = 1;
/// Interrupt identification register (read) and FIFO control register (write).
pub const IIR_FCR: u64 = 2;
/// Line control register.
pub const LCR: u64 = 3;
/// Modem control register.
pub const MCR: u64 = 4;
/// Line status register.
pub const LSR: u64 = 5;
/// How many registers there are; the last two are the modem status and the scratch register.
pub const REGISTERS: u64 = 8;

/// Depth of the receiver FIFO of the model in bytes. The part has 16; a driver reads until the LSR says empty.
pub const FIFO_BYTES: usize = 64;

/// IER bit 0, ERBFI: interrupt when received data is available.
const IER_ERBFI: u8 = 1 << 0;
/// IER bit 1, ETBEI: interrupt when the transmitter holding register is empty.
const IER_ETBEI: u8 = 1 << 1;
/// IIR bits 7:6: the FIFOs are on.
const IIR_FIFOS: u8 = 0b11 << 6;
/// IIR bit 0 set: no interrupt pending.
const IIR_NONE: u8 = 0b0001;
/// IIR bits 3:0: transmitter holding register empty, third priority.
const IIR_THRE: u8 = 0b0010;
/// IIR bits 3:0: received data available, second priority.
const IIR_RDA: u8 = 0b0100;
/// LCR bit 7, DLAB: the first two registers are the divisor latch.
const LCR_DLAB: u8 = 1 << 7;
/// LSR bit 0, DR: the receiver has data.
const LSR_DR: u8 = 1 << 0;
/// LSR bit 5, THRE, and bit 6, TEMT: the transmitter takes another byte, and has sent all it had.
const LSR_THRE_TEMT: u8 = 0b11 << 5;

/// LSR reads in a row after which the driver is taken to wait for something else than the transmitter. Linux reads it
/// at most twice between two bytes.
const POLLS_OF_A_WAITING_DRIVER: u8 = 3;

/// What a serial port tells its owner. Called with the port locked: take note, do not call back into the port.
pub trait SerialEvents: Send + Sync {
    /// The output was given up for `error` (its reader is gone, say). Told once; later output is dropped and counted.
    fn output_failed(&self, error: &io::Error);

    /// Output waits that has no newline yet, or that the output was too busy to take: call [`Serial::flush`] in some
    /// 10 ms, whatever else happens, and again for as long as it says [`Flushed::Waiting`].
    fn output_waiting(&self);

    /// The FIFO has room again after [`Serial::feed`] could not take everything.
    fn input_room(&self);
}

impl<T: SerialEvents + ?Sized> SerialEvents for std::sync::Arc<T> {
    fn output_failed(&self, error: &io::Error) {
        (**self).output_failed(error);
    }

    fn output_waiting(&self) {
        (**self).output_waiting();
    }

    fn input_room(&self) {
        (**self).input_room();
    }
}

/// What [`Serial::flush`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flushed {
    /// Nothing waits.
    Done,
    /// The output is busy and some bytes still wait.
    Waiting,
}

/// What [`Serial::feed_from`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fed {
    /// So many bytes went to the guest; the source may have more.
    Bytes(usize),
    /// The FIFO is full: leave the source alone until [`SerialEvents::input_room`].
    Full,
    /// The source has nothing at the moment.
    Nothing,
    /// The source has ended.
    End,
}

/// Bytes a serial port has dealt with since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerialCounters {
    /// Bytes the output took.
    pub written_bytes: u64,
    /// Bytes lost: sent after the output had failed, or by a driver that ignored a busy transmitter.
    pub dropped_bytes: u64,
    /// Bytes that wait for the output.
    pub waiting_bytes: u64,
    /// Bytes taken from the feeder.
    pub fed_bytes: u64,
    /// Interrupts that could not be raised.
    pub interrupts_failed: u64,
}

/// The interrupt line as the register model wants it: cannot fail, for a failure is counted.
struct Line<I> {
    interrupt: I,
    failed: Cell<u64>,
}

impl<I: Interrupt> Trigger for Line<I> {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        if self.interrupt.raise().is_err() {
            self.failed.set(self.failed.get() + 1);
        }
        Ok(())
    }
}

/// A serial port. `W` is the output; a write to it may block the vCPU that sends, which is back-pressure.
pub struct Serial<I: Interrupt, W: Write + Send, E: SerialEvents> {
    uart: Mutex<Uart<I, W, E>>,
}

impl<I: Interrupt, W: Write + Send, E: SerialEvents> Serial<I, W, E> {
    /// A port in its state after reset.
    pub fn new(interrupt: I, output: W, events: E) -> Self {
        let line = Line { interrupt, failed: Cell::new(0) };
        let model = vm_superio::Serial::new(line, Transmit::new(output));
        let uart = Uart {
            model,
            events,
            ier: 0,
            thre_held: false,
            polls: 0,
            backlog: VecDeque::new(),
            full: false,
            fed_bytes: 0,
        };
        Self { uart: Mutex::new(uart) }
    }

    /// Hands the output what waits.
    pub fn flush(&self) -> Flushed {
        let mut uart = self.lock();
        uart.flush();
        match uart.model.writer().waiting() {
            0 => Flushed::Done,
            _ => Flushed::Waiting,
        }
    }

    /// Bytes that [`Serial::feed`] would take now.
    #[must_use]
    pub fn input_room(&self) -> usize {
        self.lock().input_room()
    }

    /// Gives the guest as much of `input` as there is room for, and returns how many bytes that was.
    ///
    /// The rest stays with the caller, who hears of [`SerialEvents::input_room`] when it is worth trying again.
    #[must_use = "bytes that were not taken must be offered again"]
    pub fn feed(&self, input: &[u8]) -> usize {
        self.lock().feed(input)
    }

    /// Reads from `source` what there is room for. For one feeder: with two, bytes read at the same time could be lost.
    ///
    /// # Errors
    /// What reading reports, but for "interrupted" and "would block", which are [`Fed::Nothing`].
    pub fn feed_from(&self, source: &mut impl Read) -> io::Result<Fed> {
        let mut bytes = [0; FIFO_BYTES];
        // Not locked while reading: a source that blocks must not stop the guest's output.
        let room = self.lock().input_room_or_wait();
        if room == 0 {
            return Ok(Fed::Full);
        }
        match source.read(&mut bytes[..room]) {
            Ok(0) => Ok(Fed::End),
            Ok(count) => Ok(Fed::Bytes(self.lock().feed(&bytes[..count.min(room)]))),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(Fed::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// What the port has done so far.
    #[must_use]
    pub fn counters(&self) -> SerialCounters {
        let uart = self.lock();
        let transmit = uart.model.writer();
        SerialCounters {
            written_bytes: transmit.written_bytes,
            dropped_bytes: transmit.dropped_bytes,
            waiting_bytes: transmit.waiting() as u64,
            fed_bytes: uart.fed_bytes,
            interrupts_failed: uart.model.interrupt_evt().failed.get(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Uart<I, W, E>> {
        // A panic of the injected output must not take the guest's console with it: the registers are still sound.
        self.uart.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: Interrupt, W: Write + Send, E: SerialEvents> ByteRegisters for Serial<I, W, E> {
    fn read_register(&self, offset: u64) -> u8 {
        self.lock().read(offset)
    }

    fn write_register(&self, offset: u64, value: u8) {
        let mut uart = self.lock();
        uart.write(offset, value);
        uart.after_byte(offset);
    }

    fn write_register_string(&self, offset: u64, values: &[u8]) {
        let mut uart = self.lock();
        for value in values {
            uart.write(offset, *value);
        }
        uart.flush();
    }
}

/// The port's state, behind its lock.
struct Uart<I: Interrupt, W: Write, E> {
    model: vm_superio::Serial<Line<I>, NoEvents, Transmit<W>>,
    events: E,
    /// The IER, which the model hides behind DLAB.
    ier: u8,
    /// A "transmitter empty" that the IIR has not shown yet, because received data goes first.
    thre_held: bool,
    /// LSR reads since the last byte sent.
    polls: u8,
    /// Input taken that the FIFO has no room for: the guest's own loopback bytes may have come between.
    backlog: VecDeque<u8>,
    /// Whether the feeder was sent away and waits for room.
    full: bool,
    fed_bytes: u64,
}

impl<I: Interrupt, W: Write, E: SerialEvents> Uart<I, W, E> {
    fn read(&mut self, offset: u64) -> u8 {
        match offset {
            IIR_FCR => self.identify_interrupt(),
            LSR => self.line_status(),
            RBR_THR => {
                let byte = self.model_read(RBR_THR);
                self.flush();
                self.refill();
                byte
            }
            _ => self.model_read(offset),
        }
    }

    /// One register write, without deciding whether output is due.
    fn write(&mut self, offset: u64, value: u8) {
        let latched = self.model_read(LCR) & LCR_DLAB != 0;
        match offset {
            IER if !latched => self.ier = value,
            RBR_THR if !latched => {
                self.polls = 0;
                if self.model.writer().busy() {
                    // The driver ignores the LSR; give the output a last chance.
                    self.flush();
                }
            }
            _ => {}
        }
        let offset = u8::try_from(offset).unwrap_or(u8::MAX);
        // Cannot fail: the line and the transmit queue count what goes wrong instead.
        let _infallible = self.model.write(offset, value);
    }

    /// Decides, after a single byte was written to `offset`, whether output is due.
    fn after_byte(&mut self, offset: u64) {
        match offset {
            RBR_THR if self.model.writer().complete() => self.flush(),
            RBR_THR if self.model.writer().waiting() == 1 => self.events.output_waiting(),
            IER => self.flush(),
            // Leaving loopback opens the way to the FIFO again.
            MCR => self.refill(),
            _ => {}
        }
    }

    fn flush(&mut self) {
        let was_busy = self.model.writer().busy();
        if let Err(error) = self.model.writer_mut().flush() {
            self.events.output_failed(&error);
        }
        if self.model.writer().waiting() > 0 {
            self.events.output_waiting();
        }
        if was_busy && !self.model.writer().busy() {
            self.transmitter_empty_again();
        }
    }

    /// A driver that stopped for a busy transmitter continues at the next THRE interrupt.
    fn transmitter_empty_again(&mut self) {
        self.thre_held = true;
        if self.ier & IER_ETBEI != 0 {
            let Ok(()) = self.model.interrupt_evt().trigger();
        }
    }

    /// IIR: the pending interrupt of the highest priority. Reading clears "transmitter empty" only when it is shown
    /// (data sheet, table "Interrupt Control Functions"); the model would show both at once, as another interrupt.
    fn identify_interrupt(&mut self) -> u8 {
        let pending = self.model_read(IIR_FCR);
        self.thre_held |= pending & (IIR_THRE | IIR_NONE) == IIR_THRE;
        let received = self.ier & IER_ERBFI != 0 && self.model_read(LSR) & LSR_DR != 0;
        let emptied = self.ier & IER_ETBEI != 0 && self.thre_held && !self.model.writer().busy();
        let shown = match (received, emptied) {
            (true, _) => IIR_RDA,
            (false, true) => {
                self.thre_held = false;
                IIR_THRE
            }
            (false, false) => IIR_NONE,
        };
        IIR_FIFOS | shown
    }

    /// LSR, with the transmitter busy while the queue is full.
    fn line_status(&mut self) -> u8 {
        self.polls = self.polls.saturating_add(1);
        if self.polls >= POLLS_OF_A_WAITING_DRIVER || self.model.writer().busy() {
            self.flush();
        }
        let status = self.model_read(LSR);
        if self.model.writer().busy() { status & !LSR_THRE_TEMT } else { status }
    }

    fn model_read(&mut self, offset: u64) -> u8 {
        self.model.read(u8::try_from(offset).unwrap_or(u8::MAX))
    }

    fn input_room(&self) -> usize {
        if self.backlog.is_empty() { self.model.fifo_capacity() } else { 0 }
    }

    fn input_room_or_wait(&mut self) -> usize {
        let room = self.input_room();
        self.full |= room == 0;
        room
    }

    fn feed(&mut self, input: &[u8]) -> usize {
        // An answer to a prompt: the prompt comes first.
        self.flush();
        let taken = input.len().min(self.input_room());
        self.full |= taken < input.len();
        self.backlog.extend(&input[..taken]);
        self.fed_bytes += taken as u64;
        self.fill_fifo();
        taken
    }

    /// Moves waiting input to the FIFO, then tells a feeder who was sent away. Half a FIFO is worth a call; a guest
    /// that has more than that unread is not waiting for input.
    fn refill(&mut self) {
        self.fill_fifo();
        if self.full && self.input_room() >= FIFO_BYTES / 2 {
            self.full = false;
            self.events.input_room();
        }
    }

    fn fill_fifo(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        // Nothing is taken in loopback mode or when the FIFO is full, and then it all stays in the backlog.
        let taken = self.model.enqueue_raw_bytes(self.backlog.make_contiguous()).unwrap_or(0);
        self.backlog.drain(..taken);
    }
}

#[cfg(test)]
mod tests;
