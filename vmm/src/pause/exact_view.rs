// SPDX-License-Identifier: Apache-2.0
//! The view of the runqueues that a machine gets: the kernel's own numbers as soon as they can be had, until then and
//! otherwise what `/proc` shows.
//!
//! The exact view is loaded once pause events ask often enough ([`OnDemand`]). Invariant: what is not granted is never silently
//! replaced; the grant says what was used and why.

use std::sync::Arc;

use super::effective::Grant;
use super::runqueue::RunqueueView;
use crate::host::runqueue::{Exact, Loaded, OnDemand, OwnThreads, ThreadSeen};

/// The best view there is at the moment.
#[derive(Debug)]
pub(super) struct BestView {
    threads: Arc<OwnThreads>,
    exact: OnDemand,
}

impl BestView {
    /// A view that has loaded nothing yet; `threads` is where threads make themselves known.
    pub(super) fn new(threads: Arc<OwnThreads>) -> Self {
        Self { threads, exact: OnDemand::default() }
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
        if self.is_exact() { "bpf" } else { self.threads.name() }
    }

    fn is_exact(&self) -> bool {
        self.exact.get().is_some()
    }

    fn look(&self, which: &[usize], seen: &mut [ThreadSeen]) {
        match self.exact.get() {
            Some(exact) => self.look_exactly(exact, which, seen),
            None => self.threads.look(which, seen),
        }
    }

    fn wanted(&self) {
        self.exact.want();
    }

    fn limits(&self) -> &'static str {
        if self.is_exact() {
            "every task of a thread's runqueue; not what else its CPU does (interrupts, a hypervisor below)"
        } else {
            self.threads.limits()
        }
    }

    fn grants(&self) -> Vec<Grant> {
        let own = || Grant::yes(self.threads.name(), self.threads.limits());
        let why = match self.exact.state() {
            Loaded::Yes => return vec![Grant::yes("bpf", self.limits())],
            Loaded::Unasked => {
                return vec![Grant::unasked("bpf", "there were too few pause events to pay for it"), own()];
            }
            not => not.in_words(),
        };
        vec![Grant::no("bpf", why, None), own()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> BestView {
        BestView::new(Arc::new(OwnThreads::new(1)))
    }

    #[test]
    fn nothing_is_loaded_before_a_look_and_the_grant_says_so() {
        let view = view();
        let grants = view.grants();
        assert_eq!(
            grants.iter().map(|grant| (&*grant.name, grant.granted)).collect::<Vec<_>>(),
            [("bpf", false), ("procfs", true)]
        );
        assert!(!grants[0].asked && !view.is_exact());
    }

    #[test]
    fn a_view_that_is_wanted_is_loaded_or_says_why_not() {
        let view = view();
        view.wanted();
        view.exact.wait();
        let grants = view.grants();
        assert!(grants[0].asked && grants[0].granted == view.is_exact(), "{grants:?}");
        // Nobody stands at the position, so nothing is known, whichever view answers.
        let mut seen = [ThreadSeen { runqueue: Some(1), ..ThreadSeen::default() }];
        view.look(&[0], &mut seen);
        assert_eq!(seen, [ThreadSeen::default()]);
    }
}
