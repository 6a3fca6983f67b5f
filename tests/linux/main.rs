// SPDX-License-Identifier: Apache-2.0
//! Debian's kernels, unmodified, on `vmm` in the lab: they boot without a complaint, see the machine that was asked for,
//! and end it in every way that a machine ends.
//!
//! By default a small set runs; `VMM_LAB=full` runs the whole matrix, `VMM_LAB=none` nothing. On a machine that cannot
//! have a lab every test is reported as ignored, with the reason; so is, by default, one whose lab hosts stopped by themselves. What was tried and what came out: docs/linux-guests.md.

mod by_hand;
mod complaints;
mod exits;
mod experiments;
mod guests;
mod hwloc;
mod kernels;
mod loading;
mod monitor;
mod offers;
mod power;
mod seen;
mod shapes;
mod stopped;

use std::sync::OnceLock;

use lab::Lab;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Two emulators at once on a small machine make both slow enough to be taken for hung.
    arguments.test_threads.get_or_insert(1);
    let trials = [
        kernels::trials(),
        shapes::trials(),
        loading::trials(),
        power::trials(),
        offers::trials(),
        exits::trials(),
        by_hand::trials(),
        experiments::trials(),
        stopped::trials(),
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit();
}

/// When a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// Always.
    Small,
    /// With `VMM_LAB=full`.
    Full,
}

/// A test that needs the lab.
fn trial(name: &str, set: Set, test: impl FnOnce() -> Result<Completion, Failed> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match missing(set) {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => test(),
    })
}

/// Why a test cannot, or shall not, run here.
fn missing(set: Set) -> Option<String> {
    static LAB: OnceLock<Option<String>> = OnceLock::new();
    if std::env::var("VMM_LAB").as_deref() == Ok("none") {
        return Some("VMM_LAB=none".to_owned());
    }
    if set == Set::Full && !full() {
        return Some("part of the whole matrix; run with VMM_LAB=full".to_owned());
    }
    LAB.get_or_init(|| Lab::new().available().err().map(|error| error.to_string())).clone()
}

/// Whether the whole matrix was asked for.
fn full() -> bool {
    std::env::var("VMM_LAB").as_deref() == Ok("full")
}

/// Fails with all of `problems`, unless there are none.
fn none_of(what: &str, problems: &[impl AsRef<str>]) -> Result<(), Failed> {
    let problems: Vec<&str> = problems.iter().map(AsRef::as_ref).collect();
    if problems.is_empty() { Ok(()) } else { Err(format!("{what}:\n  {}", problems.join("\n  ")).into()) }
}
