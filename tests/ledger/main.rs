// SPDX-License-Identifier: Apache-2.0
//! Each vCPU's ledger of a whole run against wall time and against what the guest did, and the two views of the
//! runqueues against each other.
//!
//! Runs the monitor that `VMM=PATH` names, or the one built as this test was. Invariant: a test
//! that this machine cannot run is reported as ignored, with the reason, and never as passed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../linux/monitor.rs"]
mod monitor;
#[path = "../trial.rs"]
mod trial;

use std::fs;
use std::hint;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use serde_json::Value;
use vmm::host::runqueue::{Exact, OwnThreads, ThreadSeen};
use vmm::ledger::meter::Meter;

use trial::{kvm, trial};

fn main() {
    let mut arguments = Arguments::from_args();
    // One at a time: they measure time.
    arguments.test_threads = Some(1);
    let trials = vec![
        trial("ledger_of_vcpus_that_spin_is_guest_time_and_waiting", kvm, spin),
        trial("ledger_of_vcpus_that_idle_is_halted", kvm, idle),
        trial("ledger_of_a_mixed_workload_adds_up", kvm, mixed),
        trial("ledger_adds_up_while_pause_loops_are_seen_and_acted_on", kvm, acting),
        trial("reading_the_clock_around_exits_costs_less_than_the_ledger_may_be_wrong", kvm, clock_reads),
        trial("ledger_of_emulated_ring_0_is_kernel_time", software_kvm, ring_0),
        trial("every_counter_of_kvm_is_described_and_agrees_with_the_ledger", kvm, counters),
        trial("runqueue_views_agree_within_one_task", bpf, views),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

fn software_kvm() -> Option<String> {
    let hardware =
        fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" vmx ") || text.contains(" svm "));
    if hardware { Some("this KVM is not software-virtualised".to_owned()) } else { kvm() }
}

fn bpf() -> Option<String> {
    Exact::open().err().map(|why| why.to_string())
}

/// The report of a run of two vCPUs.
fn run(probe: &str) -> Value {
    run_with(&[], probe)
}

fn run_with(flags: &[&str], probe: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.json");
    let mut command = Command::new(monitor::path());
    command
        .args(["--cpus=2", "--probe", probe])
        .args(flags)
        .arg("--report")
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    read(&path)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A term of a vCPU's ledger as a share of all terms.
fn share(vcpu: &Value, term: &str) -> f64 {
    let terms = vcpu["ledger_ns"].as_object().unwrap();
    let total: f64 = terms.values().map(|ns| ns.as_f64().unwrap()).sum();
    vcpu["ledger_ns"][term].as_f64().unwrap() / total
}

/// The vCPUs of a report whose ledgers add up to the wall time of the run loop, within 1 %: no term counts twice.
fn vcpus_that_add_up(report: &Value) -> &Vec<Value> {
    let vcpus = report["vcpus"].as_array().unwrap();
    for vcpu in vcpus {
        let total: u64 = vcpu["ledger_ns"].as_object().unwrap().values().map(|ns| ns.as_u64().unwrap()).sum();
        let wall = vcpu["run_loop_ns"].as_u64().unwrap();
        assert!(total.abs_diff(wall) * 100 <= wall, "{total} of {wall}: {vcpu}");
        // The workload's time by the guest's own clock lies within.
        assert!(wall as f64 >= report["workload"]["seconds"].as_f64().unwrap_or(0.0) * 0.99e9, "{vcpu}");
    }
    vcpus
}

fn spin() {
    let report = run("spin seconds=3 report=none");
    // Before the workload a vCPU may halt for as long as the others take to start.
    let seconds = report["workload"]["seconds"].as_f64().unwrap();
    for vcpu in vcpus_that_add_up(&report) {
        let ns = |term: &str| vcpu["ledger_ns"][term].as_f64().unwrap();
        assert!(ns("guest") + ns("waiting") + ns("kernel") > 0.9e9 * seconds && ns("guest") > 0.0, "{vcpu}");
    }
}

fn idle() {
    let report = run("idle seconds=2 report=none");
    for vcpu in vcpus_that_add_up(&report) {
        assert!(share(vcpu, "halted") + share(vcpu, "polling") + share(vcpu, "waiting") > 0.9, "{vcpu}");
    }
}

fn mixed() {
    for probe in ["ipi seconds=2 report=none", "ticket seconds=2 report=none"] {
        let report = run(probe);
        assert!(vcpus_that_add_up(&report).iter().all(|vcpu| vcpu["ledger_ns"]["user"].as_u64().unwrap() > 0));
    }
}

/// Port writes, parks, yields, kicks of the sampler, holds: thousands of exits a second, and none of that time is lost or
/// counted twice.
fn acting() {
    let injected = ["--inject-preemption=seed=3,mean=5ms,hold=1ms", "--placement=pin=0"];
    for (flags, probe) in [
        (&["--pause-source=port", "--placement=pin=0"][..], "ring seconds=2 report=none"),
        (&["--pause-source=port", "--pause-mechanism=park", "--placement=pin=0"], "ring seconds=2 report=none"),
        (&["--pause-source=sampler", "--pause-set=sampler_window_ns=1000000"], "ring seconds=2 port=off report=none"),
        (&injected, "ticket seconds=2 report=none"),
    ] {
        let report = run_with(flags, probe);
        let vcpus = vcpus_that_add_up(&report);
        let events: u64 = vcpus.iter().map(|vcpu| vcpu["pause"]["events"].as_u64().unwrap()).sum();
        assert!(events > 0, "{flags:?}: {report}");
    }
}

/// The ledger's clock is read twice for each time the guest is entered. What that costs is in the ledger, and is no more
/// than a hundredth of it with the most exits a guest makes: one that does nothing but write to the pause port.
fn clock_reads() {
    const READS: u32 = 200_000;
    let meter = Meter::default();
    let mut stretch = meter.start();
    let begun = Instant::now();
    for _ in 0..READS {
        stretch.entering();
        stretch.left();
    }
    let pair_ns = begun.elapsed().as_secs_f64() * 1e9 / f64::from(READS);
    drop(stretch);
    let report = run_with(&["--pause-mechanism=none", "--placement=pin=0"], "ring seconds=2 spins=1 report=none");
    for vcpu in vcpus_that_add_up(&report) {
        let exits: u64 = vcpu["exits"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let (cost_ns, wall_ns) = (exits as f64 * pair_ns, vcpu["run_loop_ns"].as_f64().unwrap());
        assert!(exits > 100 && cost_ns * 100.0 <= wall_ns, "{exits} exits, {pair_ns} ns each: {vcpu}");
    }
}

fn ring_0() {
    let report = run("spin seconds=3 cpl=0 report=none");
    for vcpu in vcpus_that_add_up(&report) {
        assert!(share(vcpu, "kernel") > 2.0 * share(vcpu, "guest"), "{vcpu}");
    }
}

fn counters() {
    let report = run("idle seconds=1 report=none");
    let stats = &report["kvm_stats"];
    assert!(stats["missing"].is_null(), "{stats}");
    let described: Vec<&str> =
        stats["counters"].as_array().unwrap().iter().map(|counter| counter["name"].as_str().unwrap()).collect();
    for vcpu in vcpus_that_add_up(&report) {
        let counted = vcpu["kvm_stats"].as_object().unwrap();
        assert!(counted.keys().all(|name| described.contains(&&**name)), "{vcpu}");
        assert!(counted["exits"].as_u64().unwrap() > 0, "{vcpu}");
        // KVM's halt goes on until the woken thread runs; the ledger's ends when it is woken.
        let (halted, halt_wait) = (&vcpu["ledger_ns"]["halted"], &counted["halt_wait_ns"]);
        assert!(halted.as_u64().unwrap() <= halt_wait.as_u64().unwrap() + 500_000_000, "{vcpu}");
    }
}

/// Among threads that spin on one CPU, the exact length of the runqueue is at least what the unprivileged view counts, less
/// one for the moment between the two looks, and exactly one of those threads or a stranger has the CPU.
fn views() {
    const THREADS: usize = 3;
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let spinners: Vec<_> = (0..THREADS)
        .map(|_| {
            let (stop, tell) = (Arc::clone(&stop), tell.clone());
            thread::spawn(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            })
        })
        .collect();
    let tids: Vec<i32> = told.iter().take(THREADS).collect();
    let exact = Exact::open().unwrap();
    let own = OwnThreads::new(THREADS);
    tids.iter().enumerate().for_each(|(position, tid)| own.register(position, *tid));
    let (mut by_kernel, mut by_proc) = (Vec::new(), [ThreadSeen::default(); THREADS]);
    let mut agreed = 0;
    const LOOKS: usize = 100;
    for _ in 0..LOOKS {
        exact.look(&tids, &mut by_kernel).unwrap();
        own.look(&[0, 1, 2], &mut by_proc);
        let agrees = by_kernel.iter().zip(&by_proc).all(|(exact, own)| {
            let ours = by_proc.iter().filter(|other| other.runnable == Some(true) && other.cpu == own.cpu).count();
            exact.runnable == Some(true)
                && exact.runnable == own.runnable
                && (exact.cpu != own.cpu || exact.runqueue.unwrap() as usize + 1 >= ours)
        });
        agreed += usize::from(agrees && by_kernel.iter().filter(|one| one.on_cpu == Some(true)).count() <= THREADS);
        thread::sleep(Duration::from_millis(2));
    }
    stop.store(true, Ordering::Relaxed);
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    // Threads may be moved between the two looks, which is rare.
    assert!(agreed * 10 >= LOOKS * 9, "{agreed} of {LOOKS} looks agree: {by_kernel:?} {by_proc:?}");
}
