// SPDX-License-Identifier: Apache-2.0
//! When `sched_yield` is probed: once, beside the vCPUs, when the first of them is seen to spin.
//!
//! Nothing waits for the probe: no start, which it would delay by milliseconds, and no decision, which until then has
//! the kernel's word for it. A decision log is the exception: it has the mechanisms in its header, so they must be known
//! before the first decision. Invariant: a probe that came to no result withdraws nothing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::effective::Grant;
use super::yielding::{self, YieldProbe};

/// The name of the mechanism.
pub(super) const YIELD: &str = "yield";

/// Whether a machine wants the probe, and what it makes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Why it is not made, if it is not.
    pub skipped: Option<String>,
    /// A probe without success withdraws the mechanism; not if it was asked for by name.
    pub withdraws: bool,
    /// It is made before the first decision, not beside the first.
    pub at_once: bool,
}

impl Terms {
    /// It is not made.
    pub(super) const fn skipped(why: String) -> Self {
        Self { skipped: Some(why), withdraws: false, at_once: false }
    }
}

/// One machine's probe, to be made or made.
#[derive(Debug, Default)]
pub struct YieldTrial {
    terms: Mutex<Terms>,
    // Mirror the terms, for a look at every event.
    wanted: AtomicBool,
    condemns: AtomicBool,
    begun: AtomicBool,
    found: OnceLock<io::Result<YieldProbe>>,
}

impl YieldTrial {
    /// From now on these hold. What the probe has found stays found.
    pub(super) fn set_terms(&self, terms: Terms) {
        self.wanted.store(terms.skipped.is_none(), Ordering::Relaxed);
        self.condemns.store(terms.withdraws, Ordering::Relaxed);
        *self.lock() = terms;
    }

    fn lock(&self) -> MutexGuard<'_, Terms> {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it if `terms` will not have it later.
    pub(super) fn make_at_once(&self, terms: &Terms) {
        if terms.at_once && terms.skipped.is_none() && !self.begun.swap(true, Ordering::Relaxed) {
            self.make();
        }
    }

    /// Whether the caller is to make it; true once.
    pub(super) fn is_due(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
            && !self.begun.load(Ordering::Relaxed)
            && !self.begun.swap(true, Ordering::Relaxed)
    }

    /// Makes it, on threads of its own, and waits for it.
    pub(super) fn make(&self) {
        self.note(yielding::probe());
    }

    /// Takes in what came of it, once.
    pub(super) fn note(&self, found: io::Result<YieldProbe>) {
        let _ = self.found.set(found);
    }

    /// Whether it showed that yielding is not worth anything.
    pub(super) fn withdraws(&self) -> bool {
        self.condemns.load(Ordering::Relaxed) && self.is_useless()
    }

    fn is_useless(&self) -> bool {
        matches!(self.found.get(), Some(Ok(probe)) if !probe.is_useful())
    }

    /// The mechanism as it stands now, where it was asked for.
    pub(super) fn grant(&self) -> Grant {
        let terms = self.lock().clone();
        self.grant_under(&terms)
    }

    /// The mechanism as it would stand under `terms`.
    pub(super) fn grant_under(&self, terms: &Terms) -> Grant {
        let why = match (self.found.get(), &terms.skipped) {
            (Some(Ok(probe)), _) => format!("{} of {} yields let another thread run", probe.switched, probe.yields),
            (Some(Err(error)), _) => format!(
                "not tried, no thread can be started: {error}; raise the limit on processes (ulimit -u, pids cgroup)"
            ),
            (None, Some(why)) => format!("not tried {why}"),
            (None, None) if self.begun.load(Ordering::Relaxed) => "the try has not come to its end".to_owned(),
            (None, None) => "not tried, for no vCPU was seen to spin".to_owned(),
        };
        if terms.withdraws && self.is_useless() { Grant::no(YIELD, why, None) } else { Grant::yes(YIELD, why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USELESS: YieldProbe = YieldProbe { yields: 64, switched: 3 };

    fn trial(terms: Terms) -> YieldTrial {
        let trial = YieldTrial::default();
        trial.set_terms(terms);
        trial
    }

    const fn due(withdraws: bool) -> Terms {
        Terms { skipped: None, withdraws, at_once: false }
    }

    #[test]
    fn it_is_due_once_and_never_where_it_is_skipped() {
        let once = trial(due(true));
        assert!(once.grant().granted && once.grant().why.contains("not tried"), "{:?}", once.grant());
        assert!(once.is_due() && !once.is_due());
        let skipped = trial(Terms::skipped("with one vCPU".to_owned()));
        assert!(!skipped.is_due());
        assert_eq!(skipped.grant().why, "not tried with one vCPU");
        skipped.set_terms(due(true));
        assert!(skipped.is_due(), "other terms hold now");
    }

    #[test]
    fn only_a_result_withdraws_what_was_not_asked_for_by_name() {
        for (withdraws, found, granted) in [
            (true, Ok(USELESS), false),
            (false, Ok(USELESS), true),
            (true, Ok(YieldProbe { switched: 60, ..USELESS }), true),
            (true, Err(io::Error::from_raw_os_error(libc::EAGAIN)), true),
        ] {
            let trial = trial(due(withdraws));
            trial.note(found);
            assert_eq!(trial.grant().granted, granted, "{:?}", trial.grant());
            assert_eq!(trial.withdraws(), !granted);
        }
    }
}
