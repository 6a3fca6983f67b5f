// SPDX-License-Identifier: Apache-2.0
//! What the guest has sent and the output has not taken yet.
//!
//! The UART puts bytes in, [`Transmit::flush`] hands them to the output in as few writes as possible. Invariants: every
//! byte put in is written once, is waiting, or is counted as dropped; at most [`CAPACITY_BYTES`] wait; an output that
//! failed for good is never called again.

use std::io::{self, ErrorKind, Write};

/// Bytes that may wait for an output that is busy. 16 times what one `rep outsb` exit can carry.
pub(super) const CAPACITY_BYTES: usize = 64 * 1024;

/// Room below which the transmitter reports itself busy: the depth of the FIFO, so that a driver's burst always fits.
const BUSY_BELOW_BYTES: usize = 64;

/// A line longer than this goes out in pieces.
const LINE_BYTES: usize = 1024;

pub(super) struct Transmit<W> {
    output: W,
    queue: Vec<u8>,
    failed: bool,
    pub(super) written_bytes: u64,
    pub(super) dropped_bytes: u64,
}

impl<W: Write> Transmit<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output, queue: Vec::new(), failed: false, written_bytes: 0, dropped_bytes: 0 }
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a driver should hold back.
    pub(super) fn busy(&self) -> bool {
        CAPACITY_BYTES - self.queue.len() < BUSY_BELOW_BYTES
    }

    /// Whether what waits should not wait any longer.
    pub(super) fn complete(&self) -> bool {
        self.queue.last() == Some(&b'\n') || self.queue.len() >= LINE_BYTES
    }

    /// Gives the output what waits. An output that is busy keeps the rest waiting.
    ///
    /// # Errors
    /// The failure for which the output was given up, once; from then on bytes are dropped and counted.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let mut failure = None;
        while let Some(rest) = self.queue.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.output.write(rest) {
                Ok(0) => failure = Some(ErrorKind::WriteZero.into()),
                Ok(taken) => sent += taken.min(rest.len()),
                // Interrupted: somebody wants this thread for something else; it comes back here soon enough.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => break,
                Err(error) => failure = Some(error),
            }
            if failure.is_some() {
                break;
            }
        }
        self.written_bytes += sent as u64;
        self.queue.drain(..sent);
        failure.map_or(Ok(()), |error| {
            self.give_up();
            Err(error)
        })
    }

    fn give_up(&mut self) {
        self.failed = true;
        self.dropped_bytes += self.queue.len() as u64;
        self.queue = Vec::new();
    }
}

/// The side of the UART model. Never fails: what cannot wait is counted.
impl<W: Write> Write for Transmit<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = if self.failed { 0 } else { CAPACITY_BYTES - self.queue.len() };
        let kept = bytes.len().min(room);
        self.queue.extend_from_slice(&bytes[..kept]);
        self.dropped_bytes += (bytes.len() - kept) as u64;
        Ok(bytes.len())
    }

    /// The model flushes after every byte; when a line really goes out is decided by the device.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
