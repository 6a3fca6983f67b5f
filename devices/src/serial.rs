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
mod uart;

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bus::ByteRegisters;
use crate::interrupt::Interrupt;
use uart::Uart;

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

/// A serial port. `W` is the output; a write to it may block the vCPU that sends, which is back-pressure.
pub struct Serial<I: Interrupt, W: Write + Send, E: SerialEvents> {
    uart: Mutex<Uart<I, W, E>>,
}

impl<I: Interrupt, W: Write + Send, E: SerialEvents> Serial<I, W, E> {
    /// A port in its state after reset.
    pub fn new(interrupt: I, output: W, events: E) -> Self {
        Self { uart: Mutex::new(Uart::new(interrupt, output, events)) }
    }

    /// Hands the output what waits.
    pub fn flush(&self) -> Flushed {
        let mut uart = self.lock();
        uart.flush();
        if uart.waiting() == 0 { Flushed::Done } else { Flushed::Waiting }
    }

    /// Gives the guest as much of `input` as there is room for, and returns how many bytes that was.
    ///
    /// The rest stays with the caller, who hears of [`SerialEvents::input_room`] when it is worth trying again. In
    /// loopback mode the receiver is not connected, and there is no room.
    #[must_use = "bytes that were not taken must be offered again"]
    pub fn feed(&self, input: &[u8]) -> usize {
        self.lock().feed(input)
    }

    /// What the port has done so far.
    #[must_use]
    pub fn counters(&self) -> SerialCounters {
        self.lock().counters()
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
        if offset == RBR_THR {
            uart.flush();
        } else {
            uart.after_byte(offset);
        }
    }
}

#[cfg(test)]
mod tests;
