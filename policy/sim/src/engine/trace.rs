// SPDX-License-Identifier: Apache-2.0
//! What happened, as a list for timelines and golden tests, and as one number for comparisons.
//!
//! Invariant: the number depends on every event's time, actor and kind, and on nothing else.

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A task runs on a CPU from now on.
    Runs {
        /// The task, counted over all VMs.
        task: usize,
        /// Where.
        cpu: usize,
    },
    /// A task has lost or left its CPU.
    Stops {
        /// The task.
        task: usize,
        /// Where it was.
        cpu: usize,
        /// Why.
        why: &'static str,
    },
    /// A task begins to spin.
    Spins {
        /// The task.
        task: usize,
        /// Where.
        cpu: usize,
        /// The task that can end it, if one can be named.
        owner: Option<usize>,
    },
    /// A task has got what it waited for.
    Gets {
        /// The task.
        task: usize,
        /// Where.
        cpu: usize,
    },
    /// The monitor decided.
    Decides {
        /// The spinner.
        task: usize,
        /// Where it runs.
        cpu: usize,
        /// What was decided.
        what: &'static str,
        /// Whom it favours.
        target: Option<usize>,
    },
}

/// The record of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Events with their times, in order, at most as many as were asked for.
    pub events: Vec<(u64, TraceEvent)>,
    most: usize,
    hash: u64,
}

impl Trace {
    /// A record of at most `most` events.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { events: Vec::new(), most, hash: 0xCBF2_9CE4_8422_2325 }
    }

    /// Notes that `slot` acted at `time`.
    #[inline]
    pub(crate) fn mark(&mut self, time: u64, slot: usize) {
        self.hash = (self.hash ^ time.rotate_left(20) ^ slot as u64).wrapping_mul(0x0000_0100_0000_01B3);
    }

    /// Whether events are wanted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.events.len() < self.most
    }

    /// Notes an event.
    pub(crate) fn push(&mut self, time: u64, event: TraceEvent) {
        if self.is_on() {
            self.events.push((time, event));
        }
    }

    /// A number that is equal for equal runs.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.hash
    }
}
