// SPDX-License-Identifier: Apache-2.0
//! The guest's serial output on its way to clients: the last bytes, counted from the first.
//!
//! Invariant: appending never waits for a reader; a reader that comes too late is told from which byte on it reads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Bytes that are kept.
pub const KEPT_BYTES: usize = 256 * 1024;

/// Which bytes are kept. Bytes are counted from the first one that the guest sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SerialInfo {
    /// The oldest byte that is kept.
    pub from: u64,
    /// The byte that comes next: as many as the guest has sent.
    pub next: u64,
}

/// The last bytes of a serial port.
#[derive(Debug)]
pub struct SerialLog {
    kept: Mutex<VecDeque<u8>>,
    most: usize,
    next: watch::Sender<u64>,
}

impl Default for SerialLog {
    fn default() -> Self {
        Self::keeping(KEPT_BYTES)
    }
}

impl SerialLog {
    /// A log that keeps the last `most` bytes, at least 1.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        Self { kept: Mutex::default(), most: most.max(1), next: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // Nothing under this lock panics.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends what the guest sent, and wakes who waits for it.
    pub fn append(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut kept = self.lock();
        let fitting = &bytes[bytes.len().saturating_sub(self.most)..];
        let over = (kept.len() + fitting.len()).saturating_sub(self.most);
        kept.drain(..over);
        kept.extend(fitting);
        // Under the lock, so that the count only grows.
        self.next.send_modify(|next| *next += bytes.len() as u64);
    }

    /// Which bytes are kept.
    #[must_use]
    pub fn info(&self) -> SerialInfo {
        let kept = self.lock();
        let next = *self.next.borrow();
        SerialInfo { from: next - kept.len() as u64, next }
    }

    /// Up to `most` bytes from number `from` on, and the number of the first of them: a greater one than `from` if that is
    /// gone, a lesser one if it is still to come.
    #[must_use]
    pub fn read(&self, from: u64, most: usize) -> (u64, Vec<u8>) {
        let kept = self.lock();
        let next = *self.next.borrow();
        let oldest = next - kept.len() as u64;
        let from = from.clamp(oldest, next);
        // At most the length of `kept`, which is a usize.
        let skipped = usize::try_from(from - oldest).unwrap_or(usize::MAX);
        (from, kept.iter().skip(skipped).take(most).copied().collect())
    }

    /// Tells of the number of the next byte whenever some were appended.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_read_by_number() {
        let log = SerialLog::keeping(8);
        log.append(b"0123456");
        assert_eq!(log.info(), SerialInfo { from: 0, next: 7 });
        assert_eq!(log.read(2, 3), (2, b"234".to_vec()));
        log.append(b"789ab");
        assert_eq!(log.info(), SerialInfo { from: 4, next: 12 });
        assert_eq!(log.read(0, 99), (4, b"456789ab".to_vec()), "the oldest are gone");
        assert_eq!(log.read(50, 99), (12, Vec::new()), "nothing has come yet");
    }

    #[test]
    fn more_than_is_kept_leaves_the_end() {
        let log = SerialLog::keeping(4);
        log.append(b"0123456789");
        assert_eq!(log.read(0, 99), (6, b"6789".to_vec()));
        log.append(b"");
        assert_eq!(log.info(), SerialInfo { from: 6, next: 10 });
    }
}
