// SPDX-License-Identifier: Apache-2.0
//! Where threads stand with the host's scheduler: the facts behind the decision whether a yield can help anybody.
//!
//! [`View`] is what the pause loop's mechanism asks. Two kinds exist: [`Exact`], which reads the kernel's own
//! numbers through a BPF program and needs privileges, and [`Unprivileged`], which reads `/proc/self/task` and says what
//! it cannot see. [`open`] gives the best that the host allows, and the reason when that is the second.
//! Invariant: unknown is `None`, never 0 and never "idle".

mod exact;
pub(crate) mod proc_text;
mod unprivileged;

use std::fmt;
use std::io;

use topology::id::HostCpu;

pub use exact::{Exact, ExactError};
pub use unprivileged::Unprivileged;

/// What a thread does, as the scheduler has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// Wants a CPU, and may have one (`TASK_RUNNING`, `R`).
    Runnable,
    /// Waits for something.
    Blocked,
    /// There is no such thread any more.
    Gone,
}

/// One thread at one moment, as far as the view can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSeen {
    /// What it does.
    pub state: ThreadState,
    /// Whether it is on a CPU.
    pub on_cpu: Option<bool>,
    /// The CPU it is on or was last on.
    pub cpu: Option<HostCpu>,
    /// Runnable tasks on that CPU's runqueue, itself included if it is runnable: the kernel's `nr_running`.
    pub runqueue: Option<u32>,
    /// At least so many tasks are runnable there: those among the threads of this look. A lower bound of `runqueue`.
    pub runqueue_at_least: Option<u32>,
    /// How long it has wanted a CPU without having one, in all its life, in nanoseconds (`run_delay` of schedstat). It
    /// grows when the thread gets a CPU, not while it waits.
    pub waited_ns: Option<u64>,
}

impl ThreadSeen {
    /// A thread that has ended.
    pub const GONE: Self = Self {
        state: ThreadState::Gone,
        on_cpu: None,
        cpu: None,
        runqueue: None,
        runqueue_at_least: None,
        waited_ns: None,
    };
}

/// A way to tell where threads stand. Called at pause events, by any thread, also at the same time.
#[derive(Debug)]
pub enum View {
    /// The kernel's own numbers.
    Exact(Exact),
    /// What `/proc` shows of our own threads.
    Unprivileged(Unprivileged),
}

impl View {
    /// Looks at the threads of this process with these ids; `seen` is emptied and gets one entry a thread, in order.
    ///
    /// # Errors
    /// The kernel's own; a thread that has ended is no error.
    pub fn look(&self, threads: &[i32], seen: &mut Vec<ThreadSeen>) -> io::Result<()> {
        seen.clear();
        match self {
            Self::Exact(exact) => exact.look(threads, seen),
            Self::Unprivileged(own) => own.look(threads, seen),
        }
    }

    /// How it knows.
    #[must_use]
    pub const fn source(&self) -> Source {
        match self {
            Self::Exact(_) => Source::Bpf,
            Self::Unprivileged(_) => Source::Proc,
        }
    }
}

/// How a view knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's own numbers, by a BPF program.
    Bpf,
    /// `/proc/self/task`.
    Proc,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "runqueue lengths read by BPF",
            Self::Proc => "our own threads in /proc/self/task; runqueue lengths are unknown",
        })
    }
}

/// Asked, granted, why.
#[derive(Debug)]
pub struct Granted {
    /// The view.
    pub view: View,
    /// Why it is not the exact one; `None` if it is.
    pub why: Option<ExactError>,
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runqueues: asked {}, granted {}", Source::Bpf, self.view.source())?;
        self.why.as_ref().map_or(Ok(()), |why| write!(f, "; because {why}"))
    }
}

/// The exact view if the host allows it, else the unprivileged one with the reason.
#[must_use]
pub fn open() -> Granted {
    match Exact::open() {
        Ok(exact) => Granted { view: View::Exact(exact), why: None },
        Err(why) => Granted { view: View::Unprivileged(Unprivileged::new()), why: Some(why) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_was_not_granted_says_what_was_and_why() {
        let granted =
            Granted { view: View::Unprivileged(Unprivileged::new()), why: Some(ExactError::OtherPidNamespace) };
        let text = granted.to_string();
        assert!(text.contains("asked") && text.contains("granted") && text.contains("pid namespace"), "{text}");
    }
}
