// SPDX-License-Identifier: Apache-2.0
//! A machine's view of the host's runqueues, as its driver asks for it.
//!
//! Invariant: what a view cannot see is `None`, never a guess.

use super::effective::Grant;
use crate::host::runqueue::{OwnThreads, ThreadSeen};

/// A way to look at the host's runqueues. Called on vCPU threads, at the same time.
pub trait RunqueueView: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Whether it sees runqueue lengths and who is on a CPU, foreign tasks included.
    fn is_exact(&self) -> bool;

    /// Looks at threads of this process: `seen[n]` becomes what is known of the thread at position `which[n]` of the list
    /// the view was made with.
    fn look(&self, which: &[usize], seen: &mut [ThreadSeen]);

    /// A decision is at hand that would be better for an exact view.
    fn wanted(&self) {}

    /// What it cannot see, in words.
    fn limits(&self) -> &'static str;

    /// What was asked for, what was granted, and why.
    fn grants(&self) -> Vec<Grant> {
        vec![Grant::yes(self.name(), self.limits())]
    }
}

impl RunqueueView for OwnThreads {
    fn name(&self) -> &'static str {
        "procfs"
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn look(&self, which: &[usize], seen: &mut [ThreadSeen]) {
        Self::look(self, which, seen);
    }

    fn limits(&self) -> &'static str {
        "sees no tasks of others, and not which of the runnable threads has the CPU"
    }
}
