// SPDX-License-Identifier: Apache-2.0
//! Pause and resume, hammered: a lost kick would leave a vCPU in the guest and the answer would never come. And a vCPU
//! whose thread ends while the others wait for it.

use std::env;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use probe::record::Ready;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;
use vmm::config::cli::{self, Invocation};
use vmm::host::affinity;
use vmm::kvm::system::System;
use vmm::vcpu::control::{Reply, Request, State};
use vmm::vm::assembly::WithMemory;
use vmm::vm::observed::SharedObserved;
use vmm::vm::running::Running;

use crate::{Missing, kvm, trial};

/// Ends a test when the monitor's own limit on an answer does not.
const LIMIT: Duration = Duration::from_secs(600);

/// The hammer, on guests that sit in different places when the kick comes.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("ten_thousand_pauses_of_32_vcpus_lose_no_kick", kvm, || watched(|| hammer("idle", 10_000))),
        // Each pause waits until every vCPU that was preempted in the guest has had its turn on the host.
        trial("pauses_of_32_spinning_vcpus_lose_no_kick", kvm, || watched(|| hammer("spin", 200))),
        trial("ten_thousand_pauses_of_32_spinning_vcpus_lose_no_kick", long, || hammer("spin", 10_000)),
        trial("a_processor_that_comes_late_is_waited_for", kvm, || watched(late_processor)),
        trial("a_processor_that_never_comes_is_counted_as_missing", kvm, || watched(missing_processor)),
        trial("a_guest_that_is_paused_while_it_boots_boots_all_the_same", kvm, || watched(paused_boots)),
        trial("a_vcpu_that_dies_leaves_nobody_parked_for_ever", kvm, || watched(dead_vcpu)),
    ]
}

/// For what takes a quarter of an hour.
fn long() -> Missing {
    kvm().or_else(|| env::var_os("VMM_HAMMER").is_none().then(|| "takes many minutes: VMM_HAMMER=1 runs it".to_owned()))
}

fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, answer) = mpsc::channel();
    thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    answer.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}"));
}

/// As many pauses as that, of one guest after another: none lasts long enough for all of them where they are slow.
fn hammer(workload: &str, cycles: u32) {
    /// Shorter than a guest lasts, by more than a pause may take.
    const TURN: Duration = Duration::from_secs(240);
    let mut left = 0..cycles;
    while !left.is_empty() {
        let running = start(&format!("{workload} seconds=300 report=none"), &SharedObserved::default());
        let begun = Instant::now();
        for cycle in left.by_ref().take_while(|_| begun.elapsed() < TURN) {
            pause_and_resume(&running, cycle);
        }
        // Gone without a word: every thread must come to its end when the machine is dropped.
    }
}

fn pause_and_resume(running: &Running, cycle: u32) {
    running.pause().unwrap_or_else(|error| panic!("pause {cycle}: {error}"));
    assert!(running.vcpus().iter().all(|vcpu| vcpu.state() == State::Paused), "cycle {cycle}");
    running.resume().unwrap_or_else(|error| panic!("resume {cycle}: {error}"));
}

/// The vCPUs wait for SIPI, are emulated, exit for every character: nothing of that may be lost.
fn paused_boots() {
    for _ in 0..5 {
        let observed = SharedObserved::default();
        let running = start("idle seconds=300 report=lines", &observed);
        (0..50).for_each(|cycle| pause_and_resume(&running, cycle));
        let seen = || observed.lock().unwrap().machine.map(|machine| machine.cpus);
        while seen().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(seen(), Some(32));
    }
}

/// The guest starts, and one of its processors does not run.
fn without_one(report: &SharedObserved) -> Running {
    let running = start_with(&["--cpus=4"], "report report=lines", report);
    let late = &running.vcpus()[LATE];
    late.ask(Request::Pause);
    assert_eq!(late.wait(LIMIT), Ok(Reply::Now(State::Paused)));
    running
}

/// The processor that is late.
const LATE: usize = 2;

fn ready(observed: &SharedObserved) -> (Ready, Instant) {
    loop {
        if let Some(ready) = observed.lock().unwrap().ready {
            return ready;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn late_processor() {
    /// More than twice what the guest waits before it sends its start-up interrupt again.
    const LATE_BY: Duration = Duration::from_millis(500);
    let observed = SharedObserved::default();
    let running = without_one(&observed);
    let begun = Instant::now();
    thread::sleep(LATE_BY);
    assert_eq!(observed.lock().unwrap().ready, None, "it is waited for");
    running.vcpus()[LATE].ask(Request::Run);
    let (told, at) = ready(&observed);
    assert_eq!((told.aps, told.missing), (3, 0));
    // What the summary tells of the last processor is when this line came.
    assert!(at - begun >= LATE_BY);
    let seen = || observed.lock().unwrap().machine.map(|machine| machine.cpus);
    while seen().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen(), Some(4));
}

fn missing_processor() {
    let observed = SharedObserved::default();
    let running = without_one(&observed);
    let (told, _) = ready(&observed);
    assert_eq!((told.aps, told.missing), (2, 1));
    // It comes when nobody waits any more, and is let into nothing.
    running.vcpus()[LATE].ask(Request::Run);
    let seen = || observed.lock().unwrap().machine.map(|machine| machine.cpus);
    while seen().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen(), Some(3));
}

/// The ring stands still when one vCPU is gone; the others name it, wait for it and are parked, a second at a time.
fn dead_vcpu() {
    const DEAD: usize = 3;
    for mechanism in ["auto", "park", "yield"] {
        let mechanism = format!("--pause-mechanism={mechanism}");
        let longest = ["--pause-set=park_max_ns=1000000000", "--pause-set=park_named_ns=1000000000"];
        let flags = ["--cpus=8", &*mechanism, longest[0], longest[1]];
        let observed = SharedObserved::default();
        let running = start_with(&flags, "ring seconds=300 report=lines", &observed);
        let one: CpuSet<HostCpu> = affinity::of_this_thread().unwrap().iter().take(1).collect();
        running.vcpus().iter().for_each(|vcpu| vcpu.confine(&one).unwrap());
        // What it prints comes before the workload; then the ring is on its way.
        while observed.lock().unwrap().machine.is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(300));
        let limit = Duration::from_secs(60);
        let ask = |at: usize, request| {
            running.vcpus()[at].ask(request);
            running.vcpus()[at].wait(limit).unwrap_or_else(|error| panic!("{mechanism}, vCPU {at}: {error}"))
        };
        ask(DEAD, Request::Finish);
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(100));
            for at in (0..8).filter(|at| *at != DEAD) {
                ask(at, Request::Pause);
                assert_eq!(running.vcpus()[at].state(), State::Paused, "{mechanism}, vCPU {at}");
                ask(at, Request::Run);
            }
        }
        assert_eq!(running.vcpus()[DEAD].state(), State::Finished);
        assert!(running.pause().is_err(), "one of the vCPUs cannot be paused, and it is said");
    }
}

fn start(workload: &str, observed: &SharedObserved) -> Running {
    start_with(&["--cpus=32"], workload, observed)
}

/// Without placement: this process is the test's, whose own threads would be kept off the vCPUs' CPUs.
fn start_with(flags: &[&str], workload: &str, observed: &SharedObserved) -> Running {
    let arguments = [&["vmm", "--serial=none", "--placement=none", "--probe", workload], flags].concat();
    let line = arguments.iter().map(Into::into);
    let Ok(Invocation::Run { config, .. }) = cli::parse(line) else { panic!("{arguments:?} is no run") };
    let system = System::open().unwrap();
    let with_memory = WithMemory::map(config.resolve().unwrap(), &system).unwrap();
    let with_devices = with_memory.load().unwrap().devices(Arc::clone(observed).into()).unwrap();
    with_devices.vcpus().unwrap().threads().unwrap().start()
}
