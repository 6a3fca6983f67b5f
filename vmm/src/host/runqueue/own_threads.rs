// SPDX-License-Identifier: Apache-2.0
//! What needs no privileges: the files of our own threads under `/proc/self/task` (proc_pid_stat(5)), opened once and read
//! by `pread`.
//!
//! They tell whether a thread is runnable and on which CPU it last was; not whether a runnable thread has that CPU, nor
//! anything of tasks that are not ours. So a bail-out that needs "one runnable task" cannot be granted on their word.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use topology::id::HostCpu;

use super::{ThreadSeen, proc_text};
use crate::host::limits;

/// Threads of this process by position, each known from when it makes itself known.
#[derive(Debug, Default)]
pub struct OwnThreads {
    stats: Vec<OnceLock<(i32, Option<File>)>>,
}

impl OwnThreads {
    /// So many threads, none of which is known yet.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { stats: std::iter::repeat_with(OnceLock::new).take(threads).collect() }
    }

    /// Says which thread stands at a position. Called once each, from any thread.
    pub fn register(&self, position: usize, tid: i32) {
        if let Some(slot) = self.stats.get(position) {
            slot.get_or_init(|| (tid, File::open(format!("/proc/self/task/{tid}/stat")).and_then(limits::spare).ok()));
        }
    }

    /// The thread that stands at a position; `None` until it is known.
    #[must_use]
    pub fn tid(&self, position: usize) -> Option<i32> {
        self.stats.get(position).and_then(OnceLock::get).map(|(tid, _)| *tid)
    }

    /// Looks at threads: `seen[n]` becomes what is known of the thread at position `which[n]`. Called by any thread, also at
    /// the same time.
    pub fn look(&self, which: &[usize], seen: &mut [ThreadSeen]) {
        for (position, seen) in which.iter().zip(seen) {
            *seen = self.look_at(*position).unwrap_or_default();
        }
    }

    fn look_at(&self, position: usize) -> Option<ThreadSeen> {
        /// All fields that are read fit, with a name of 15 letters and numbers of 20 digits.
        const BYTES: usize = 1024;
        let (_, file) = self.stats.get(position)?.get()?;
        let mut text = [0; BYTES];
        // ESRCH: the thread has ended since the file was opened.
        let read = file.as_ref()?.read_at(&mut text, 0).ok()?;
        let stat = proc_text::stat(&text[..read])?;
        let runnable = match stat.state {
            b'R' => true,
            b'Z' | b'X' | b'x' => return None,
            _ => false,
        };
        // A thread that waits has no CPU; one that is runnable may have one.
        let on_cpu = (!runnable).then_some(false);
        Some(ThreadSeen { runqueue: None, on_cpu, runnable: Some(runnable), cpu: Some(HostCpu(stat.cpu)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_not_there_is_unknown() {
        let threads = OwnThreads::new(1);
        threads.register(0, i32::MAX);
        let mut seen = [ThreadSeen { runqueue: Some(1), ..ThreadSeen::default() }; 2];
        threads.look(&[0, 9], &mut seen);
        assert_eq!(seen, [ThreadSeen::default(); 2]);
    }
}
