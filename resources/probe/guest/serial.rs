// SPDX-License-Identifier: Apache-2.0
//! Text on COM1, a line at a time.
//!
//! Every byte costs an exit of the virtual machine, so the register status is looked at once per FIFO and the bytes are
//! sent by one string instruction in ring 0 (traps.S). Invariant: lines of different CPUs do not mix.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::hardware::{in8, out8};
use crate::service;

const COM1: u16 = 0x3f8;
const INTERRUPT_ENABLE: u16 = COM1 + 1;
const FIFO_CONTROL: u16 = COM1 + 2;
const MODEM_CONTROL: u16 = COM1 + 4;
const LINE_STATUS: u16 = COM1 + 5;

static BUSY: AtomicBool = AtomicBool::new(false);
/// How long a line waits for another CPU's line; a CPU that died holding the port must not silence the rest.
const PATIENCE: u32 = 100_000_000;

/// Bytes of a line before it is sent in pieces.
const LINE_BYTES: usize = 256;

/// A line in the making.
pub struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    fn flush(&mut self) {
        service::write_serial(self.bytes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == LINE_BYTES {
                self.flush();
            }
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// Writes one line.
pub fn line(text: fmt::Arguments<'_>) {
    let mut waited = 0;
    while BUSY.swap(true, Ordering::Acquire) && waited < PATIENCE {
        core::hint::spin_loop();
        waited += 1;
    }
    let mut line = Line { bytes: [0; LINE_BYTES], len: 0 };
    // A formatter that fails leaves a short line, which is what can be done about it.
    let _ = writeln!(line, "{text}");
    line.flush();
    BUSY.store(false, Ordering::Release);
}

/// Writes a line, formatted as by `format!`.
macro_rules! say {
    ($($argument:tt)*) => { $crate::serial::line(format_args!($($argument)*)) };
}
pub(crate) use say;

/// Turns on FIFO and the interrupt for received bytes (16550 data sheet: IER bit 0, FCR bit 0, MCR OUT2).
pub fn listen() {
    out8(FIFO_CONTROL, 1);
    out8(MODEM_CONTROL, 0x0b);
    out8(INTERRUPT_ENABLE, 1);
}

/// The next received byte, if there is one (LSR bit 0).
pub fn receive() -> Option<u8> {
    (in8(LINE_STATUS) & 1 != 0).then(|| in8(COM1))
}

/// Sends bytes as they are.
pub fn send(bytes: &[u8]) {
    service::write_serial(bytes);
}
