// SPDX-License-Identifier: Apache-2.0
//! When `sched_yield` is probed: once, beside the vCPUs, when the first of them is seen to spin.
//!
//! Nothing waits for the probe: no start, which it would delay by milliseconds, and no decision, which until then has
//! the kernel's word for it. A decision log is the exception: it has the mechanisms in its header, so they must be known
//! before the first decision. Invariant: a probe that came to no result withdraws nothing.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::effective::Grant;
use super::yielding::{self, YieldProbe};

/// The name of the mechanism.
pub(super) const YIELD: &str = "yield";

/// One machine's probe, to be made or made.
#[derive(Debug)]
pub struct YieldTrial {
    /// Why it is never made.
    skipped: Option<String>,
    /// Whether a probe without success withdraws the mechanism; not if it was asked for by name.
    withdraws: bool,
    begun: AtomicBool,
    found: OnceLock<io::Result<YieldProbe>>,
}

impl YieldTrial {
    /// A probe that is made when it is asked for.
    pub(super) const fn due(withdraws: bool) -> Self {
        Self { skipped: None, withdraws, begun: AtomicBool::new(false), found: OnceLock::new() }
    }

    /// A probe that is never made.
    pub(super) const fn skipped(why: String) -> Self {
        Self { skipped: Some(why), withdraws: false, begun: AtomicBool::new(true), found: OnceLock::new() }
    }

    /// Whether the caller is to make it; true once.
    pub(super) fn is_due(&self) -> bool {
        !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed)
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
        self.withdraws && matches!(self.found.get(), Some(Ok(probe)) if !probe.is_useful())
    }

    /// The mechanism as it stands now, where it was asked for.
    pub(super) fn grant(&self) -> Grant {
        let why = match (self.found.get(), &self.skipped) {
            (Some(Ok(probe)), _) => format!("{} of {} yields let another thread run", probe.switched, probe.yields),
            (Some(Err(error)), _) => format!(
                "not tried, no thread can be started: {error}; raise the limit on processes (ulimit -u, pids cgroup)"
            ),
            (None, Some(why)) => format!("not tried {why}"),
            (None, None) if self.begun.load(Ordering::Relaxed) => "the try has not come to its end".to_owned(),
            (None, None) => "not tried, for no vCPU was seen to spin".to_owned(),
        };
        if self.withdraws() { Grant::no(YIELD, why, None) } else { Grant::yes(YIELD, why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USELESS: YieldProbe = YieldProbe { yields: 64, switched: 3 };

    #[test]
    fn it_is_due_once_and_never_where_it_is_skipped() {
        let trial = YieldTrial::due(true);
        assert!(trial.grant().granted && trial.grant().why.contains("not tried"), "{:?}", trial.grant());
        assert!(trial.is_due() && !trial.is_due());
        let skipped = YieldTrial::skipped("with one vCPU".to_owned());
        assert!(!skipped.is_due());
        assert_eq!(skipped.grant().why, "not tried with one vCPU");
    }

    #[test]
    fn only_a_result_withdraws_what_was_not_asked_for_by_name() {
        for (withdraws, found, granted) in [
            (true, Ok(USELESS), false),
            (false, Ok(USELESS), true),
            (true, Ok(YieldProbe { switched: 60, ..USELESS }), true),
            (true, Err(io::Error::from_raw_os_error(libc::EAGAIN)), true),
        ] {
            let trial = YieldTrial::due(withdraws);
            trial.note(found);
            assert_eq!(trial.grant().granted, granted, "{:?}", trial.grant());
            assert_eq!(trial.withdraws(), !granted);
        }
    }
}
