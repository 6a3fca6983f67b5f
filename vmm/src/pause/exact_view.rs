// SPDX-License-Identifier: Apache-2.0
//! The view of the runqueues that a machine gets: the kernel's own numbers as soon as they can be had, until then and
//! otherwise what `/proc` shows.
//!
//! Loading a program takes the kernel about ten milliseconds of CPU time (docs/ledger.md), so it is done on a thread of its own,
//! and only once a pause event asks: a machine that never spins pays nothing. Invariant: what is not granted is never
//! silently replaced; the grant says what was used and why.

use std::fmt;
use std::io;
use std::sync::{Arc, Once, OnceLock};
use std::thread;

use super::effective::Grant;
use super::runqueue::RunqueueView;
use crate::host::affinity;
use crate::host::runqueue::{Exact, ExactError, OwnThreads, ThreadSeen};

/// The best view there is at the moment.
pub(super) struct BestView {
    threads: Arc<OwnThreads>,
    asked: Once,
    loaded: Arc<OnceLock<Result<Exact, ExactError>>>,
    not_started: OnceLock<io::Error>,
}

impl BestView {
    /// A view that has loaded nothing yet; `threads` is where threads make themselves known.
    pub(super) fn new(threads: Arc<OwnThreads>) -> Self {
        Self { threads, asked: Once::new(), loaded: Arc::default(), not_started: OnceLock::new() }
    }

    fn load(&self) {
        self.asked.call_once(|| {
            let loaded = Arc::clone(&self.loaded);
            let load = move || {
                leave_the_vcpus_cpus();
                loaded.get_or_init(Exact::open);
            };
            if let Err(error) = thread::Builder::new().name("bpf-load".to_owned()).spawn(load) {
                self.not_started.get_or_init(|| error);
            }
        });
    }

    /// The exact view, once it is there.
    fn exact(&self) -> Option<&Exact> {
        self.loaded.get()?.as_ref().ok()
    }

    fn look_exactly(&self, exact: &Exact, which: &[usize], seen: &mut [ThreadSeen]) {
        seen.fill(ThreadSeen::default());
        // 0 is no thread's id: the kernel finds nobody.
        let tids: Vec<i32> = which.iter().map(|position| self.threads.tid(*position).unwrap_or(0)).collect();
        let mut looks = Vec::with_capacity(tids.len());
        if exact.look(&tids, &mut looks).is_ok() {
            seen.iter_mut().zip(looks).for_each(|(seen, look)| *seen = look);
        }
    }
}

impl RunqueueView for BestView {
    fn name(&self) -> &'static str {
        if self.exact().is_some() { "bpf" } else { self.threads.name() }
    }

    fn is_exact(&self) -> bool {
        self.exact().is_some()
    }

    fn look(&self, which: &[usize], seen: &mut [ThreadSeen]) {
        match self.exact() {
            Some(exact) => self.look_exactly(exact, which, seen),
            None => self.threads.look(which, seen),
        }
    }

    fn wanted(&self) {
        self.load();
    }

    fn limits(&self) -> &'static str {
        if self.exact().is_some() {
            "every task of a thread's runqueue; not what else its CPU does (interrupts, a hypervisor below)"
        } else {
            self.threads.limits()
        }
    }

    fn grants(&self) -> Vec<Grant> {
        let own = || Grant::yes(self.threads.name(), self.threads.limits());
        let why = match (self.loaded.get(), self.not_started.get()) {
            (Some(Ok(_)), _) => return vec![Grant::yes("bpf", self.limits())],
            (Some(Err(why)), _) => why.to_string(),
            (None, Some(error)) => format!("the thread that loads it cannot be started: {error}"),
            (None, None) if self.asked.is_completed() => "the kernel was still loading it".to_owned(),
            (None, None) => return vec![Grant::unasked("bpf", "there were too few pause events to pay for it"), own()],
        };
        vec![Grant::no("bpf", why, None), own()]
    }
}

/// Moves the calling thread, which a vCPU's thread has begun, to where the first thread of the process may run. If that is
/// refused it stays, and only takes longer.
fn leave_the_vcpus_cpus() {
    if let Some(cpus) = i32::try_from(std::process::id()).ok().and_then(|first| affinity::of(first).ok()) {
        let _ = affinity::set(0, cpus.iter());
    }
}

impl fmt::Debug for BestView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BestView").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_loaded_before_a_look_and_the_grant_says_so() {
        let view = BestView::new(Arc::new(OwnThreads::new(1)));
        let grants = view.grants();
        assert_eq!(
            grants.iter().map(|grant| (&*grant.name, grant.granted)).collect::<Vec<_>>(),
            [("bpf", false), ("procfs", true)]
        );
        assert!(!grants[0].asked && !view.is_exact());
    }

    #[test]
    fn a_view_that_is_wanted_is_loaded_or_says_why_not() {
        let view = BestView::new(Arc::new(OwnThreads::new(1)));
        view.wanted();
        view.loaded.wait();
        let grants = view.grants();
        assert!(grants[0].asked && grants[0].granted == view.is_exact(), "{grants:?}");
        // Nobody stands at the position, so nothing is known, whichever view answers.
        let mut seen = [ThreadSeen { runqueue: Some(1), ..ThreadSeen::default() }];
        view.look(&[0], &mut seen);
        assert_eq!(seen, [ThreadSeen::default()]);
    }
}
