// SPDX-License-Identifier: Apache-2.0
//! Placement on real CPUs: the program is started, and where its threads may run is read from the kernel.
//!
//! Every test has a directory of claims of its own. Invariant: a test that this machine cannot run is reported as ignored,
//! with the reason, and never as passed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers are part of it")]

mod bad_input;
mod claims;
mod host;
mod huge_pages;
mod lab;
mod live;
#[path = "../whole/monitor.rs"]
#[expect(dead_code, reason = "the tests of the whole program use more of it")]
mod monitor;
mod threads;
#[path = "../trial.rs"]
mod trial;

use libtest_mimic::Arguments;

use trial::{Missing, kvm, trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // One at a time: they move threads about, and look where these are.
    arguments.test_threads.get_or_insert(1);
    let groups =
        [threads::trials(), claims::trials(), live::trials(), bad_input::trials(), huge_pages::trials(), lab::trials()];
    libtest_mimic::run(&arguments, groups.into_iter().flatten().collect()).exit();
}
