// SPDX-License-Identifier: Apache-2.0
//! The view that needs no privileges: the files of our own threads under `/proc/self/task`, opened once and read by `pread`.
//!
//! It sees whether a thread is runnable, on which CPU it last was, and how long it has been kept waiting. It does not see
//! whether a runnable thread is on a CPU, nor any task but those it is asked about; so a runqueue's length is a lower
//! bound, and a bail-out that needs "one runnable task" cannot be granted on its word.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use topology::id::HostCpu;

use super::proc_text;
use super::{ThreadSeen, ThreadState};

/// More than either file is long.
const TEXT_BYTES: usize = 1024;

/// Files of threads that have been asked about.
#[derive(Debug, Default)]
pub struct Unprivileged {
    files: Mutex<HashMap<i32, Files>>,
}

#[derive(Debug)]
struct Files {
    stat: File,
    schedstat: Option<File>,
}

impl Unprivileged {
    /// A view that has no file open yet: a thread's are opened when it is first asked about.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at threads; one entry each is added to `seen`.
    pub(super) fn look(&self, threads: &[i32], seen: &mut Vec<ThreadSeen>) -> io::Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for tid in threads {
            seen.push(see(&mut files, *tid)?);
        }
        count_runnable(seen);
        Ok(())
    }
}

fn see(files: &mut HashMap<i32, Files>, tid: i32) -> io::Result<ThreadSeen> {
    let of_thread = match files.entry(tid) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => match Files::open(tid) {
            Ok(opened) => entry.insert(opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ThreadSeen::GONE),
            Err(error) => return Err(error),
        },
    };
    let seen = of_thread.see();
    if seen == ThreadSeen::GONE {
        files.remove(&tid);
    }
    Ok(seen)
}

impl Files {
    fn open(tid: i32) -> io::Result<Self> {
        let open = |file: &str| File::open(format!("/proc/self/task/{tid}/{file}"));
        // A kernel without CONFIG_SCHED_INFO has no schedstat.
        Ok(Self { stat: open("stat")?, schedstat: open("schedstat").ok() })
    }

    fn see(&self) -> ThreadSeen {
        let mut text = [0; TEXT_BYTES];
        // ESRCH: the thread has ended since the file was opened.
        let Some(stat) = self.stat.read_at(&mut text, 0).ok().and_then(|length| proc_text::stat(&text[..length]))
        else {
            return ThreadSeen::GONE;
        };
        let waited = self.schedstat.as_ref().and_then(|file| {
            let length = file.read_at(&mut text, 0).ok()?;
            proc_text::schedstat(&text[..length])
        });
        let state = match stat.state {
            b'R' => ThreadState::Runnable,
            b'Z' | b'X' | b'x' => return ThreadSeen::GONE,
            _ => ThreadState::Blocked,
        };
        ThreadSeen {
            state,
            // A thread that waits has no CPU; one that is runnable may have one.
            on_cpu: (state == ThreadState::Blocked).then_some(false),
            cpu: Some(HostCpu(stat.cpu)),
            runqueue: None,
            runqueue_at_least: None,
            waited_ns: waited.map(|stat| stat.waited_ns),
        }
    }
}

/// Fills in how many of the threads are runnable on each one's CPU.
fn count_runnable(seen: &mut [ThreadSeen]) {
    let mut runnable: HashMap<HostCpu, u32> = HashMap::new();
    for thread in seen.iter().filter(|thread| thread.state == ThreadState::Runnable) {
        if let Some(cpu) = thread.cpu {
            *runnable.entry(cpu).or_default() += 1;
        }
    }
    for thread in seen {
        thread.runqueue_at_least = thread.cpu.map(|cpu| runnable.get(&cpu).copied().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runnable_threads_are_counted_by_cpu() {
        let thread = |state, cpu| ThreadSeen { state, cpu: Some(HostCpu(cpu)), ..ThreadSeen::GONE };
        let mut seen = [
            thread(ThreadState::Runnable, 0),
            thread(ThreadState::Blocked, 0),
            thread(ThreadState::Runnable, 0),
            thread(ThreadState::Blocked, 1),
            ThreadSeen::GONE,
        ];
        count_runnable(&mut seen);
        assert_eq!(seen.map(|thread| thread.runqueue_at_least), [Some(2), Some(2), Some(2), Some(0), None]);
    }
}
