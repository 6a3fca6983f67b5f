// SPDX-License-Identifier: Apache-2.0
//! How a run ends, and what the exit status says of it: the guest's own ends, and the operator's.

use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::monitor::{self, Monitor};
use crate::{kvm, trial};

/// A workload, the exit status it leads to, and the reason in words.
const GUEST_ENDS: [(&str, i32, &str); 6] = [
    ("idle seconds=0.1", 0, "guest powered off"),
    ("report", 0, "guest powered off"),
    ("reset", 32, "guest reset"),
    ("i8042-reset", 32, "guest reset"),
    ("triple-fault", 33, "guest crash (triple fault on vCPU 0)"),
    ("panic", 34, "guest panic: the probe guest says asked-for (panic)"),
];

/// One test for each way to end.
pub(crate) fn trials() -> Vec<Trial> {
    let ends = GUEST_ENDS.iter().map(|&(workload, status, reason)| {
        let name = workload.split(' ').next().unwrap_or_default().replace('-', "_");
        trial(format!("workload_{name}_ends_with_status_{status}"), kvm, move || guest_ends(workload, status, reason))
    });
    let operator = [
        trial("sigint_ends_a_run_at_once", kvm, || stopped_by(Signal::INT, "stopped by the operator")),
        trial("sighup_ends_a_run_at_once", kvm, || stopped_by(Signal::HUP, "stopped by the operator")),
        trial("sigterm_does_not_wait_for_a_guest_without_a_power_button", kvm, || {
            stopped_by(Signal::TERM, "stopped by SIGTERM; the guest does not listen to its power button");
        }),
        trial("a_guest_that_hangs_can_be_stopped", kvm, hanging_guest),
        trial("a_second_signal_finds_a_run_that_ends_cleanly", kvm, signals_in_a_row),
        trial("a_run_ends_though_its_user_may_queue_no_signals", kvm, || stopped_under(&["prlimit", "--sigpending=0"])),
        trial("a_run_ends_though_signals_were_blocked_around_it", kvm, || stopped_under(&["env", "--block-signal"])),
        trial("vcpu_threads_are_named_after_their_vcpus", kvm, thread_names),
        trial("why_the_probe_guest_gave_up_is_in_the_report", kvm, gave_up),
    ];
    ends.chain(operator).collect()
}

fn guest_ends(workload: &str, status: i32, reason: &str) {
    let ended = Monitor::new(["--cpus=2", "--probe", &format!("{workload} report=none")]).run().expect(status);
    ended.expect_reason(reason);
    assert_eq!(ended.files(), [""; 0]);
}

fn stopped_by(signal: Signal, reason: &str) {
    let started = Monitor::new(["--cpus=4", "--probe", "spin seconds=300 report=none"]).start();
    started.wait_for_vcpus(4);
    started.signal(signal);
    // The reason is another one when the deadline for a guest that listens was waited for.
    started.wait().expect(0).expect_reason(reason);
}

fn hanging_guest() {
    let started = Monitor::new(["--cpus=3", "--probe", "hang report=none"]).start();
    started.wait_for_vcpus(3);
    started.signal(Signal::TERM);
    started.wait().expect(0);
}

fn signals_in_a_row() {
    let started = Monitor::new(["--cpus=8", "--probe", "spin seconds=300 report=none"]).start();
    started.wait_for_vcpus(8);
    for signal in [Signal::TERM, Signal::INT, Signal::TERM, Signal::QUIT] {
        // It may have ended already and not been waited for: then the signal meets a zombie.
        started.signal(signal);
    }
    started.wait().expect(0);
}

/// Stops a run that was started by `wrapper`, a program and its arguments.
fn stopped_under(wrapper: &[&str]) {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(monitor::program()).args(["--cpus=4", "--probe", "spin seconds=300 report=none"]);
    let started = Monitor::of(command).start();
    started.wait_for_vcpus(4);
    started.signal(Signal::INT);
    // Without a kick the guest spins for longer than is waited for here.
    started.wait().expect(0).expect_reason("stopped by the operator");
}

fn thread_names() {
    let started = Monitor::new(["--cpus=5", "--probe", "spin seconds=300 report=none"]).start();
    started.wait_for_vcpus(5);
    // KVM's own worker, which some kernels show among the threads of the process; and the one that goes on placing the
    // vCPUs where there is a choice.
    let of_ours = || {
        let mut names = started.thread_names();
        names.retain(|name| !name.starts_with("kvm-nx") && name != "placement");
        names.sort();
        names
    };
    // A thread has its starter's name until it has run.
    let deadline = Instant::now() + Duration::from_secs(60);
    let expected = ["vcpu0", "vcpu1", "vcpu2", "vcpu3", "vcpu4", "vmm"];
    while of_ours() != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(of_ours(), expected);
    started.signal(Signal::INT);
    started.wait().expect(0);
}

fn gave_up() {
    let ended = Monitor::new(["--cpus=255", "--memory=4M", "--serial=none"]).run().expect(34);
    ended.expect_reason("guest panic: the probe guest says too-little (memory)");
}
