// SPDX-License-Identifier: Apache-2.0
//! What can be seen of our threads on the host's runqueues.
//!
//! Invariant: what a view cannot see is `None`, never a guess.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use topology::id::HostCpu;

use super::effective::Grant;

/// One thread, as far as a view can see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Runnable tasks on its CPU, itself included if it is one.
    pub runqueue: Option<u32>,
    /// Whether it is on a CPU at this moment.
    pub on_cpu: Option<bool>,
    /// Whether it is runnable: on a CPU or waiting for one.
    pub runnable: Option<bool>,
    /// The CPU it is on, or was on last.
    pub cpu: Option<HostCpu>,
}

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

/// The view that needs no privilege: `/proc/thread-self`'s neighbours (proc_pid_stat(5)), opened once a thread.
#[derive(Debug, Default)]
pub struct ProcView {
    stats: Vec<OnceLock<(i32, Option<File>)>>,
}

impl ProcView {
    /// A view of `threads` threads, none of which is known yet.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { stats: std::iter::repeat_with(OnceLock::new).take(threads).collect() }
    }

    /// Says which thread stands at a position. Called once each, from any thread.
    pub fn register(&self, position: usize, tid: i32) {
        if let Some(slot) = self.stats.get(position) {
            slot.get_or_init(|| (tid, File::open(format!("/proc/self/task/{tid}/stat")).ok()));
        }
    }

    /// The thread that stands at a position; `None` until it is known.
    pub(super) fn tid(&self, position: usize) -> Option<i32> {
        self.stats.get(position).and_then(OnceLock::get).map(|(tid, _)| *tid)
    }

    fn look_at(&self, position: usize) -> ThreadSeen {
        /// All fields up to the CPU fit, with a name of 15 letters and 38 numbers of 20 digits.
        const BYTES: usize = 1024;
        let Some((_, Some(file))) = self.stats.get(position).and_then(OnceLock::get) else {
            return ThreadSeen::default();
        };
        let mut text = [0; BYTES];
        match file.read_at(&mut text, 0) {
            Ok(read) => parse(&text[..read]).unwrap_or_default(),
            Err(_) => ThreadSeen::default(),
        }
    }
}

impl RunqueueView for ProcView {
    fn name(&self) -> &'static str {
        "procfs"
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn look(&self, which: &[usize], seen: &mut [ThreadSeen]) {
        for (position, seen) in which.iter().zip(seen) {
            *seen = self.look_at(*position);
        }
    }

    fn limits(&self) -> &'static str {
        "sees no tasks of others, and not which of the runnable threads has the CPU"
    }
}

/// Reads state (field 3) and processor (field 39). The name in between parentheses may hold anything.
fn parse(stat: &[u8]) -> Option<ThreadSeen> {
    let text = std::str::from_utf8(stat.get(stat.iter().rposition(|byte| *byte == b')')? + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let cpu = fields.nth(35)?.parse().ok().map(HostCpu);
    let runnable = state == "R";
    Some(ThreadSeen { runqueue: None, on_cpu: (!runnable).then_some(false), runnable: Some(runnable), cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_cpu_are_found_behind_any_name() {
        let line = |state: &str| format!("12 (a) b) c) {state} {} 17 18\n", ["0"; 35].join(" "));
        let seen = parse(line("R").as_bytes()).unwrap();
        assert_eq!((seen.runnable, seen.on_cpu, seen.cpu), (Some(true), None, Some(HostCpu(17))));
        let seen = parse(line("S").as_bytes()).unwrap();
        assert_eq!((seen.runnable, seen.on_cpu), (Some(false), Some(false)));
        for text in ["", "1 (x", "1 (x) R 2"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_thread_that_is_not_there_is_unknown() {
        let view = ProcView::new(1);
        view.register(0, i32::MAX);
        let mut seen = [ThreadSeen { runqueue: Some(1), ..ThreadSeen::default() }; 2];
        view.look(&[0, 9], &mut seen);
        assert_eq!(seen, [ThreadSeen::default(); 2]);
    }
}
