// SPDX-License-Identifier: Apache-2.0
//! The control API of the real program with a real guest behind it: what clients see is held against what the kernel says.
//!
//! Every wait is for something to happen, and has a deadline far beyond what it takes. Invariant: a test that this machine cannot
//! run is reported as ignored, with the reason, and never as passed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers are part of it")]

mod changes;
mod clients;
mod created;
mod ctl;
mod machine;
#[path = "../whole/monitor.rs"]
#[expect(dead_code, reason = "the tests of the whole program use more of it")]
mod monitor;
mod resources;
mod sockets;
mod top;
#[path = "../trial.rs"]
mod trial;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Two guests at a time: more would only make each other slow on a small machine.
    arguments.test_threads.get_or_insert(2);
    let groups = [
        resources::trials(),
        changes::trials(),
        created::trials(),
        clients::trials(),
        sockets::trials(),
        ctl::trials(),
        top::trials(),
    ];
    libtest_mimic::run(&arguments, groups.into_iter().flatten().collect()).exit();
}

/// A test that starts a guest.
fn trial(name: &str, test: fn()) -> Trial {
    trial::trial(name, trial::kvm, test)
}
