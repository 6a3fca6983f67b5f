// SPDX-License-Identifier: Apache-2.0
//! Pause and resume, hammered: a lost kick would leave a vCPU in the guest and the answer would never come.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use vmm::config::cli::{self, Invocation};
use vmm::kvm::system::System;
use vmm::vcpu::control::State;
use vmm::vm::assembly::WithMemory;
use vmm::vm::observed::SharedObserved;
use vmm::vm::running::Running;

use crate::{kvm, trial};

/// Ends a test when the monitor's own limit on an answer does not.
const LIMIT: Duration = Duration::from_secs(600);

/// The hammer, on guests that sit in different places when the kick comes.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("ten_thousand_pauses_of_32_vcpus_lose_no_kick", kvm, || watched(|| hammer("idle seconds=300", 10_000))),
        // Each pause waits until every vCPU that was preempted in the guest has had its turn on the host.
        trial("pauses_of_32_spinning_vcpus_lose_no_kick", kvm, || watched(|| hammer("spin seconds=300", 200))),
        trial("a_guest_that_is_paused_while_it_boots_boots_all_the_same", kvm, || watched(paused_boots)),
    ]
}

fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, answer) = mpsc::channel();
    thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    answer.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}"));
}

fn hammer(workload: &str, cycles: u32) {
    let running = start(&format!("{workload} report=none"), &SharedObserved::default());
    for cycle in 0..cycles {
        pause_and_resume(&running, cycle);
    }
    // Gone without a word: every thread must come to its end when the machine is dropped.
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

fn start(workload: &str, observed: &SharedObserved) -> Running {
    let arguments = ["vmm", "--cpus=32", "--serial=none", "--probe", workload];
    let line = arguments.iter().map(Into::into);
    let Ok(Invocation::Run { config, .. }) = cli::parse(line) else { panic!("{arguments:?} is no run") };
    let system = System::open().unwrap();
    let with_memory = WithMemory::map(config.resolve().unwrap(), &system).unwrap();
    let with_devices = with_memory.load().unwrap().devices(Arc::clone(observed).into()).unwrap();
    with_devices.vcpus().unwrap().threads().unwrap().start()
}
