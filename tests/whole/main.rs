// SPDX-License-Identifier: Apache-2.0
//! The program as a user meets it: started with flags, looked at from outside, and from inside its guest.
//!
//! The monitor is built as this test was (`cargo test` or `cargo test --release`), or is the one that `VMM=PATH` names.
//! Invariant: a test that this machine cannot run is reported as ignored, with the reason, and never as passed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers are part of it")]

mod bad_input;
mod bzimages;
mod console;
mod endings;
mod experiment;
mod faults;
mod full_disk;
mod images;
mod job_control;
mod linux_experiments;
mod machines;
mod monitor;
mod namespaces;
mod pause_loops;
mod pausing;
mod reports;
mod seen;
mod terminal;
#[path = "../trial.rs"]
mod trial;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libtest_mimic::Arguments;

use trial::{Missing, kvm, trial};

fn main() {
    if terminal::is_the_panicking_child() {
        terminal::panic_while_raw();
    }
    unignore_ending_signals();
    let mut arguments = Arguments::from_args();
    // Two guests at a time: more would only make each other slow on a small machine.
    arguments.test_threads.get_or_insert(2);
    let groups = [
        machines::trials(),
        endings::trials(),
        console::trials(),
        terminal::trials(),
        job_control::trials(),
        reports::trials(),
        bad_input::trials(),
        bzimages::trials(),
        full_disk::trials(),
        pause_loops::trials(),
        faults::trials(),
        pausing::trials(),
        experiment::trials(),
        linux_experiments::trials(),
    ];
    libtest_mimic::run(&arguments, groups.into_iter().flatten().collect()).exit();
}

/// A shell has its background jobs ignore the signals that end a program, what they start inherits that, and the monitor
/// honours it. So these tests start anew where one is ignored.
fn unignore_ending_signals() {
    /// SIGHUP, SIGINT, SIGQUIT and SIGTERM, as `/proc/self/status` counts them.
    const ENDING: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("proc(5)");
    if u64::from_str_radix(mask.trim(), 16).unwrap() & ENDING != 0 {
        let mut anew = Command::new("env");
        anew.arg("--default-signal=HUP,INT,QUIT,TERM").arg(env::current_exe().unwrap()).args(env::args_os().skip(1));
        panic!("env: {}", anew.exec());
    }
}

/// For tests that need nothing.
fn nothing() -> Missing {
    None
}
