// SPDX-License-Identifier: Apache-2.0
//! What a host can do to a monitor that runs: an old kernel, a vCPU thread that is gone. Made by `faults.c`.
//!
//! Invariant: whatever happens, the run ends; every wait here has an end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::Signal;
use tempfile::TempDir;
use vmm::report::Report;

use crate::monitor::{self, Monitor};
use crate::{Missing, kvm, trial};

/// `_IO(KVMIO, 0xce)` (include/uapi/linux/kvm.h).
const KVM_GET_STATS_FD: &str = "0xAECE";
/// A thread that gives no answer is given up after ten seconds (`vmm::vcpu::thread`); a busy host makes that longer.
const PROMPT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("on_a_kernel_without_counters_of_kvm_a_run_is_as_ever_and_says_so", refusing, old_kernel),
        trial("a_vcpu_thread_that_dies_keeps_nobody_from_the_end", ending_threads, dead_thread),
    ]
}

/// The program, in a directory that goes with it.
fn build() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("faults");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/whole/faults.c");
    let built = Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).status();
    assert!(built.is_ok_and(|status| status.success()), "cc cannot build {source}");
    (directory, program)
}

/// What came of a fault that was tried on another program than the monitor.
fn tried(what: &str, arguments: &[&str]) -> Missing {
    let (_directory, faults) = build();
    let done = Command::new(faults).args(arguments).output().unwrap();
    let why = || format!("{what} is not allowed here: {}", String::from_utf8_lossy(&done.stderr).trim());
    (!done.status.success()).then(why)
}

fn refusing() -> Missing {
    kvm().or_else(|| tried("seccomp", &["refuse-ioctl", KVM_GET_STATS_FD, "true"]))
}

fn ending_threads() -> Missing {
    kvm().or_else(|| {
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let missing = tried("ptrace", &["end-thread", &other.id().to_string()]);
        // It has ended, if that was allowed.
        let _ = other.kill();
        other.wait().unwrap();
        missing
    })
}

fn old_kernel() {
    let (_directory, faults) = build();
    let mut command = Command::new(faults);
    command.args(["refuse-ioctl", KVM_GET_STATS_FD]).arg(monitor::program());
    command.args(["--cpus", "4", "--serial", "none", "--placement", "pin=0", "--report", "run.json"]);
    command.args(["--probe", "ring seconds=0.5"]);
    let ended = Monitor::of(command).run().expect(0);
    let text = fs::read_to_string(ended.directory.path().join("run.json")).unwrap();
    let report: Report = serde_json::from_str(&text).unwrap();
    assert!(report.kvm_stats.missing.is_some() && report.vcpus.iter().all(|vcpu| vcpu.kvm_stats.is_empty()), "{text}");
    assert!(report.workload.is_some_and(|workload| workload.operations > 0), "{text}");
    assert!(report.vcpus.iter().any(|vcpu| vcpu.pause.yields.boosted > 0), "{text}");
}

/// The others name it, park on it for a second each time, and are never answered.
fn dead_thread() {
    let (_directory, faults) = build();
    let second = "1000000000";
    let bounds = [format!("park_max_ns={second}"), format!("park_named_ns={second}")];
    let mut arguments =
        vec!["--cpus", "4", "--serial", "none", "--probe", "ring seconds=300", "--pause-mechanism", "park"];
    bounds.iter().for_each(|bound| arguments.extend(["--pause-set", bound]));
    let started = Monitor::new(&arguments).start();
    started.wait_for_vcpus(4);
    thread::sleep(Duration::from_millis(500));
    let victim = started.thread_of("vcpu1").to_string();
    let killed = Command::new(faults).args(["end-thread", &victim]).status().unwrap();
    assert!(killed.success(), "thread {victim} cannot be ended: {killed}");
    let gone = Instant::now();
    while started.thread_names().contains(&"vcpu1".to_owned()) {
        assert!(gone.elapsed() < PROMPT, "{:?}", started.thread_names());
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    started.signal(Signal::INT);
    started.wait().expect(0);
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
}
