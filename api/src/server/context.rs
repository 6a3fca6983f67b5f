// SPDX-License-Identifier: Apache-2.0
//! What all requests share: the machine, the logs, the limits, and what was counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::limits::Limits;
use crate::events::EventLog;
use crate::monitor::Monitor;
use crate::serial::SerialLog;
use crate::wire::ApiStats;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) monitor: Arc<dyn Monitor>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) serial: Arc<SerialLog>,
    pub(crate) limits: Limits,
    requests: AtomicU64,
    refused: AtomicU64,
    connections: Arc<AtomicUsize>,
    connections_refused: AtomicU64,
    streams: Arc<AtomicUsize>,
}

/// One of a limited number; gives its place back when dropped.
#[derive(Debug)]
pub(crate) struct Held(Arc<AtomicUsize>);

impl Held {
    /// Takes a place, if fewer than `most` are taken.
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let add = |now: usize| (now < most).then_some(now + 1);
        taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    pub(crate) fn new(
        monitor: Arc<dyn Monitor>,
        events: Arc<EventLog>,
        serial: Arc<SerialLog>,
        limits: Limits,
    ) -> Self {
        Self {
            monitor,
            events,
            serial,
            limits,
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connections: Arc::default(),
            connections_refused: AtomicU64::new(0),
            streams: Arc::default(),
        }
    }

    /// A place for a connection, if there is one.
    pub(crate) fn connection(&self) -> Option<Held> {
        let held = Held::take(&self.connections, self.limits.connections);
        if held.is_none() {
            self.connections_refused.fetch_add(1, Ordering::Relaxed);
        }
        held
    }

    /// A place for a stream, if there is one.
    pub(crate) fn stream(&self) -> Option<Held> {
        Held::take(&self.streams, self.limits.streams)
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, status: u16) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if status >= 400 {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> ApiStats {
        let small = |number: &AtomicUsize| u32::try_from(number.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        ApiStats {
            requests: self.requests.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            connections: small(&self.connections),
            connections_refused: self.connections_refused.load(Ordering::Relaxed),
            streams: small(&self.streams),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let taken = Arc::new(AtomicUsize::new(0));
        let (one, two) = (Held::take(&taken, 2), Held::take(&taken, 2));
        assert!(one.is_some() && two.is_some() && Held::take(&taken, 2).is_none());
        drop(one);
        assert!(Held::take(&taken, 2).is_some());
        assert!(Held::take(&taken, 0).is_none());
    }
}
