// SPDX-License-Identifier: Apache-2.0
//! The registers behind a serial port's lock: vm-superio's model, and what the port adds to it.
//!
//! [`super::Serial`] locks and calls; here is decided when output is due, when a feeder is called back, and what the IIR and
//! the LSR show. Invariant: nothing here fails, whatever the guest does; what goes wrong is counted.

use std::cell::Cell;
use std::convert::Infallible;
use std::io::Write;

use vm_superio::serial::NoEvents;
use vm_superio::{Serial as Model, Trigger};

use super::transmit::Transmit;
use super::{FIFO_BYTES, IER, IIR_FCR, LCR, LSR, MCR, RBR_THR, SerialCounters, SerialEvents};
use crate::interrupt::Interrupt;

/// IER bit 0, ERBFI: interrupt when received data is available.
pub(super) const IER_ERBFI: u8 = 1 << 0;
/// IER bit 1, ETBEI: interrupt when the transmitter holding register is empty.
pub(super) const IER_ETBEI: u8 = 1 << 1;
/// IIR bits 7:6: the FIFOs are on.
const IIR_FIFOS: u8 = 0b11 << 6;
/// IIR bit 0 set: no interrupt pending.
pub(super) const IIR_NONE: u8 = 0b0001;
/// IIR bits 3:0: transmitter holding register empty, third priority.
pub(super) const IIR_THRE: u8 = 0b0010;
/// IIR bits 3:0: received data available, second priority.
pub(super) const IIR_RDA: u8 = 0b0100;
/// LCR bit 7, DLAB: the first two registers are the divisor latch.
pub(super) const LCR_DLAB: u8 = 1 << 7;
/// MCR bit 4, loopback: the transmitter is connected to the receiver, and the receiver to nothing else.
pub(super) const MCR_LOOP: u8 = 1 << 4;
/// LSR bit 0, DR: the receiver has data.
pub(super) const LSR_DR: u8 = 1 << 0;
/// LSR bit 5, THRE, and bit 6, TEMT: the transmitter takes another byte, and has sent all it had.
pub(super) const LSR_THRE_TEMT: u8 = 0b11 << 5;

/// LSR reads in a row after which the driver is taken to wait for something else than the transmitter. Linux reads it
/// at most twice between two bytes.
const POLLS_OF_A_WAITING_DRIVER: u8 = 3;

/// The interrupt line as the register model wants it: cannot fail, for a failure is counted.
pub(super) struct Line<I> {
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

/// The port's state, behind its lock.
pub(super) struct Uart<I: Interrupt, W: Write, E> {
    model: vm_superio::Serial<Line<I>, NoEvents, Transmit<W>>,
    events: E,
    /// The IER, which the model hides behind DLAB.
    ier: u8,
    /// A "transmitter empty" that the IIR has not shown yet, because received data goes first.
    thre_held: bool,
    /// LSR reads since the last byte sent.
    polls: u8,
    /// Whether the feeder was sent away and waits for room.
    full: bool,
    fed_bytes: u64,
}

impl<I: Interrupt, W: Write, E: SerialEvents> Uart<I, W, E> {
    pub(super) fn new(interrupt: I, output: W, events: E) -> Self {
        let line = Line { interrupt, failed: Cell::new(0) };
        Self {
            model: Model::new(line, Transmit::new(output)),
            events,
            ier: 0,
            thre_held: false,
            polls: 0,
            full: false,
            fed_bytes: 0,
        }
    }

    pub(super) fn counters(&self) -> SerialCounters {
        let transmit = self.model.writer();
        SerialCounters {
            written_bytes: transmit.written_bytes,
            dropped_bytes: transmit.dropped_bytes,
            waiting_bytes: transmit.waiting() as u64,
            fed_bytes: self.fed_bytes,
            interrupts_failed: self.model.interrupt_evt().failed.get(),
        }
    }

    /// Bytes that wait for the output.
    pub(super) fn waiting(&self) -> usize {
        self.model.writer().waiting()
    }

    pub(super) fn read(&mut self, offset: u64) -> u8 {
        match offset {
            IIR_FCR => self.identify_interrupt(),
            LSR => self.line_status(),
            RBR_THR => {
                let byte = self.model_read(RBR_THR);
                self.flush();
                self.offer_room();
                byte
            }
            _ => self.model_read(offset),
        }
    }

    /// One register write, without deciding whether output is due.
    pub(super) fn write(&mut self, offset: u64, value: u8) {
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
    pub(super) fn after_byte(&mut self, offset: u64) {
        match offset {
            RBR_THR if self.model.writer().complete() => self.flush(),
            RBR_THR if self.waiting() == 1 => self.events.output_waiting(),
            IER => self.flush(),
            // Leaving loopback connects the receiver again.
            MCR => self.offer_room(),
            _ => {}
        }
    }

    pub(super) fn flush(&mut self) {
        let was_busy = self.model.writer().busy();
        if let Err(error) = self.model.writer_mut().flush() {
            self.events.output_failed(&error);
        }
        if self.waiting() > 0 {
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

    pub(super) fn feed(&mut self, input: &[u8]) -> usize {
        // An answer to a prompt: the prompt comes first.
        self.flush();
        // The model refuses when its FIFO is full, and takes nothing in loopback mode.
        let taken = self.model.enqueue_raw_bytes(input).unwrap_or(0);
        self.full |= taken < input.len();
        self.fed_bytes += taken as u64;
        taken
    }

    /// Tells a feeder who was sent away that there is room. Half a FIFO is worth a call; a guest that has more than that
    /// unread is not waiting for input.
    fn offer_room(&mut self) {
        let connected = self.model_read(MCR) & MCR_LOOP == 0;
        if self.full && connected && self.model.fifo_capacity() >= FIFO_BYTES / 2 {
            self.full = false;
            self.events.input_room();
        }
    }
}
