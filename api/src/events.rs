// SPDX-License-Identifier: Apache-2.0
//! Events on their way from the monitor to clients: a bounded log that is appended to from any thread and read by number.
//!
//! Invariant: publishing never waits for a reader; what a reader comes too late for is announced to it as a gap.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::wire::{Event, EventKind};

/// Events that are kept.
pub const KEPT: usize = 1024;

/// The log of events.
#[derive(Debug)]
pub struct EventLog {
    kept: Mutex<VecDeque<Event>>,
    most: usize,
    last: watch::Sender<u64>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl EventLog {
    /// A log that keeps the last `most` events, at least 1.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        Self { kept: Mutex::default(), most: most.max(1), last: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // Nothing under this lock panics.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event that happened at `at_ns` of the monotonic clock, and wakes who waits for it. Gives its id.
    pub fn publish(&self, at_ns: u64, what: EventKind) -> u64 {
        let mut kept = self.lock();
        let id = *self.last.borrow() + 1;
        if kept.len() == self.most {
            kept.pop_front();
        }
        kept.push_back(Event { id, at_ns, what });
        // Under the lock, so that ids are announced in order.
        self.last.send_replace(id);
        id
    }

    /// The id of the last event; 0 before the first.
    #[must_use]
    pub fn last_id(&self) -> u64 {
        *self.last.borrow()
    }

    /// Up to `most` events behind the one with id `seen`, oldest first. If some of them are gone, the first one is a gap. An
    /// id that was never given counts as 0: it is of another process.
    #[must_use]
    pub fn after(&self, seen: u64, most: usize) -> Vec<Event> {
        let kept = self.lock();
        let seen = if seen > self.last_id() { 0 } else { seen };
        let gap = kept.front().filter(|oldest| oldest.id > seen + 1).map(|oldest| {
            let missed = oldest.id - 1 - seen;
            Event { id: oldest.id - 1, at_ns: oldest.at_ns, what: EventKind::Gap { missed } }
        });
        let newer = kept.partition_point(|event| event.id <= seen);
        gap.into_iter().chain(kept.iter().skip(newer).cloned()).take(most).collect()
    }

    /// Tells of the id of the last event whenever there is a new one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panic() -> EventKind {
        EventKind::GuestPanic { crash_loaded: false }
    }

    fn ids(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn events_are_numbered_and_resumed_by_number() {
        let log = EventLog::keeping(8);
        (0..5).for_each(|at| assert_eq!(log.publish(at, panic()), at + 1));
        assert_eq!(ids(&log.after(0, 99)), [1, 2, 3, 4, 5]);
        assert_eq!(ids(&log.after(3, 99)), [4, 5]);
        assert_eq!(ids(&log.after(3, 1)), [4]);
        assert!(log.after(5, 99).is_empty());
        assert_eq!(ids(&log.after(77, 99)), [1, 2, 3, 4, 5], "an id of another process");
    }

    #[test]
    fn what_is_gone_is_announced() {
        let log = EventLog::keeping(3);
        (0..10).for_each(|at| _ = log.publish(at, panic()));
        let seen = log.after(2, 99);
        assert_eq!(ids(&seen), [7, 8, 9, 10]);
        assert_eq!(seen[0].what, EventKind::Gap { missed: 5 });
        assert_eq!(ids(&log.after(7, 99)), [8, 9, 10], "nothing is gone behind the gap");
    }

    #[test]
    fn whoever_waits_is_told() {
        let log = EventLog::default();
        let mut told = log.subscribe();
        assert!(!told.has_changed().unwrap());
        log.publish(1, panic());
        assert!(told.has_changed().unwrap());
        assert_eq!(*told.borrow_and_update(), 1);
    }
}
