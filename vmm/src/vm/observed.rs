// SPDX-License-Identifier: Apache-2.0
//! What the monitor learns from the guest's console: the probe guest's machine-readable lines.
//!
//! The guest is not trusted: lines are bounded, a line that does not parse is only text, and what is learnt goes into
//! the summary and the report and nowhere else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use api::serial::SerialLog;
use probe::record::{Error, Machine, Outcome, Ready, Record};
use probe::report::{LINE_MAX, parse_line};

/// What the probe guest has reported so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// That its processors are up, and when that line came.
    pub ready: Option<(Ready, Instant)>,
    /// What it found in sums.
    pub machine: Option<Machine>,
    /// What its workload came to.
    pub result: Option<Outcome>,
    /// Why it gave up, if it did.
    pub error: Option<Error>,
}

/// The place where it is kept, shared by the console and the summary.
pub type SharedObserved = Arc<Mutex<Observed>>;

/// Who sees the console's bytes beside its reader.
#[derive(Clone, Debug, Default)]
pub struct Onlookers {
    /// What the summary is made from.
    pub observed: SharedObserved,
    /// What clients of the control API read.
    pub serial: Option<Arc<SerialLog>>,
    /// The machine was reset: its output goes on behind that of before.
    pub goes_on: bool,
}

impl From<SharedObserved> for Onlookers {
    fn from(observed: SharedObserved) -> Self {
        Self { observed, ..Self::default() }
    }
}

/// Cuts the console's bytes into lines and notes what they say.
#[derive(Debug)]
pub struct Observer {
    observed: SharedObserved,
    serial: Option<Arc<SerialLog>>,
    line: Vec<u8>,
    too_long: bool,
}

impl Observer {
    /// An observer that notes for `onlookers`.
    #[must_use]
    pub fn new(onlookers: impl Into<Onlookers>) -> Self {
        let Onlookers { observed, serial, .. } = onlookers.into();
        Self { observed, serial, line: Vec::new(), too_long: false }
    }

    /// Takes the next bytes of the console.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Some(serial) = &self.serial {
            serial.append(bytes);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(text) => {
                    self.extend(text);
                    self.complete();
                }
                None => self.extend(piece),
            }
        }
    }

    fn extend(&mut self, text: &[u8]) {
        // One more than a line may have, for its carriage return.
        self.too_long |= self.line.len() + text.len() > LINE_MAX + 1;
        if !self.too_long {
            self.line.extend_from_slice(text);
        }
    }

    fn complete(&mut self) {
        if !self.too_long {
            self.note();
        }
        self.line.clear();
        self.too_long = false;
    }

    fn note(&self) {
        let Some(Ok(record)) = parse_line(&self.line) else { return };
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        match record {
            Record::Ready(ready) => observed.ready = Some((ready, Instant::now())),
            Record::Machine(machine) => observed.machine = Some(machine),
            Record::Outcome(result) => observed.result = Some(result),
            Record::Error(error) => observed.error = Some(error),
            Record::Boot(_)
            | Record::Missing(_)
            | Record::Cpu(_)
            | Record::Cache(_)
            | Record::Node(_)
            | Record::Distance(_)
            | Record::Waiting(_)
            | Record::Worker(_)
            | Record::Done(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_across_writes_and_long_ones_are_skipped() {
        let observed = SharedObserved::default();
        let mut observer = Observer::new(Arc::clone(&observed));
        observer.bytes(b"hello\r\n@probe rea");
        observer.bytes(b"dy aps=31 missing=0 us=1200\r\n");
        observer.bytes(&vec![b'x'; 100_000]);
        observer.bytes(b"\n@probe machine cpus=junk\n");
        let ready = observed.lock().unwrap().ready;
        assert_eq!(ready.map(|(ready, _)| ready), Some(Ready { aps: 31, missing: 0, us: 1200 }));
        assert!(observer.line.capacity() < 4 * LINE_MAX);
    }
}
