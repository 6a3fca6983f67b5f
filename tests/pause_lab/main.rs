// SPDX-License-Identifier: Apache-2.0
//! Pause loops on an emulated host whose processors exit at every PAUSE: what the tracepoint counts, what helper vCPUs do
//! and bear, and the policy beside the kernel's own.
//!
//! All of it takes minutes and runs with `VMM_LAB=full`; otherwise, and on a machine that cannot have a lab, every test is
//! reported as ignored, with the reason. What came out: docs/pause-loops.md.

mod comparison;
mod exits;
mod faults;
mod helpers;
mod host;
#[path = "../linux/monitor.rs"]
mod monitor;

use lab::Lab;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // Two emulators at once on a small machine make both slow enough to be taken for hung.
    arguments.test_threads.get_or_insert(1);
    let trials = vec![
        trial("pause_exits_are_counted_as_the_kernel_traces_them_and_force_exits_at_the_asked_rate", exits::counted),
        trial("directed_yields_are_done_by_kvm_and_helper_vcpus_are_not_seen", helpers::directed_yields),
        trial("helper_vcpus_bear_what_a_guest_can_do_to_a_vcpu", helpers::hostile_guest),
        trial("255_vcpus_have_helpers", helpers::many),
        trial("descriptors_at_their_end_are_named_and_borne", faults::no_descriptors),
        trial("tracefs_that_goes_away_is_named_and_borne", faults::no_tracefs),
        trial("on_the_probe_guest_act_gives_way_to_the_kernel", comparison::of_the_probe_guest),
        trial("on_linux_act_gives_way_to_the_kernel", comparison::of_linux),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || match missing() {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => test().map(|()| Completion::Completed),
    })
}

fn missing() -> Option<String> {
    if std::env::var("VMM_LAB").as_deref() != Ok("full") {
        return Some("takes minutes of an emulated host; run with VMM_LAB=full".to_owned());
    }
    Lab::new().pause_filter(true).available().err().map(|error| error.to_string())
}
