// SPDX-License-Identifier: Apache-2.0
//! An exact view that is loaded once somebody asks for it.
//!
//! Loading a program takes the kernel about ten milliseconds of CPU time (docs/ledger.md), so it is done on a thread of its own,
//! and only once a decision is at hand that would be better for it: a machine where nobody spins or waits pays
//! nothing. Invariant: it is asked for at most once, and whether it was granted, and why not, can be told at any time.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use super::{Exact, ExactError};
use crate::host::affinity;

/// The exact view, if and as soon as there is one.
#[derive(Debug, Default)]
pub struct OnDemand {
    asked: OnceLock<()>,
    loaded: Arc<OnceLock<Result<Exact, ExactError>>>,
    not_started: OnceLock<io::Error>,
}

/// What has come of an [`OnDemand`] so far.
#[derive(Debug)]
pub enum Loaded<'a> {
    /// Nobody has wanted it.
    Unasked,
    /// It is not there yet.
    Loading,
    /// It is there.
    Yes,
    /// It is not to be had.
    Refused(&'a ExactError),
    /// The thread that would load it cannot be started.
    NoThread(&'a io::Error),
}

impl Loaded<'_> {
    /// The same in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self {
            Self::Unasked => "nobody asked for it".to_owned(),
            Self::Loading => "the kernel was still loading it".to_owned(),
            Self::Yes => "loaded".to_owned(),
            Self::Refused(why) => why.to_string(),
            Self::NoThread(error) => format!("the thread that loads it cannot be started: {error}"),
        }
    }
}

impl OnDemand {
    /// A decision is at hand that would be better for it. Returns at once; called by any thread, also at the same time.
    pub fn want(&self) {
        if self.asked.set(()).is_err() {
            return;
        }
        let loaded = Arc::clone(&self.loaded);
        let load = move || {
            leave_the_vcpus_cpus();
            loaded.get_or_init(Exact::open);
        };
        if let Err(error) = thread::Builder::new().name("bpf-load".to_owned()).spawn(load) {
            self.not_started.get_or_init(|| error);
        }
    }

    /// The view, once it is there.
    #[must_use]
    pub fn get(&self) -> Option<&Exact> {
        self.loaded.get()?.as_ref().ok()
    }

    /// What has come of it.
    #[must_use]
    pub fn state(&self) -> Loaded<'_> {
        match (self.loaded.get(), self.not_started.get()) {
            (Some(Ok(_)), _) => Loaded::Yes,
            (Some(Err(why)), _) => Loaded::Refused(why),
            (None, Some(error)) => Loaded::NoThread(error),
            (None, None) if self.asked.get().is_some() => Loaded::Loading,
            (None, None) => Loaded::Unasked,
        }
    }

    /// Waits until it is there or refused. For tests: who wants it does not wait.
    #[cfg(test)]
    pub(crate) fn wait(&self) {
        self.loaded.wait();
    }
}

/// Moves the calling thread, which a vCPU's thread may have begun, to where the first thread of the process may run. If that
/// is refused it stays, and only takes longer.
fn leave_the_vcpus_cpus() {
    if let Some(cpus) = i32::try_from(std::process::id()).ok().and_then(|first| affinity::of(first).ok()) {
        let _ = affinity::set(0, cpus.iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_loaded_or_says_why_not() {
        let view = OnDemand::default();
        assert!(matches!(view.state(), Loaded::Unasked));
        view.want();
        view.wait();
        assert_eq!(matches!(view.state(), Loaded::Yes), view.get().is_some());
        assert!(matches!(view.state(), Loaded::Yes | Loaded::Refused(_)), "{view:?}");
    }
}
