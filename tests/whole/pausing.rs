// SPDX-License-Identifier: Apache-2.0
//! Pause and resume, hammered: a lost kick would leave a vCPU in the guest and the answer would never come.

use std::sync::mpsc;
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

const CYCLES: u32 = 10_000;

/// Ends the test when the monitor's own limit on an answer does not.
const LIMIT: Duration = Duration::from_secs(900);

/// The hammer, on guests that sit in different places when the kick comes.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("ten_thousand_pauses_of_32_spinning_vcpus_lose_no_kick", kvm, || watched("spin seconds=300", CYCLES)),
        trial("pauses_of_32_halted_vcpus_lose_no_kick", kvm, || watched("idle seconds=300", CYCLES / 10)),
        trial("pauses_of_32_vcpus_that_exit_all_the_time_lose_no_kick", kvm, || {
            watched("ring seconds=300 port=off", CYCLES / 10);
        }),
    ]
}

fn watched(workload: &'static str, cycles: u32) {
    let (done, answer) = mpsc::channel();
    thread::spawn(move || {
        hammer(workload, cycles);
        done.send(()).unwrap();
    });
    answer.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{workload}: {error}"));
}

fn hammer(workload: &str, cycles: u32) {
    let running = start(&["--cpus=32", "--serial=none", "--probe", &format!("{workload} report=none")]);
    for cycle in 0..cycles {
        running.pause().unwrap_or_else(|error| panic!("pause {cycle}: {error}"));
        assert!(running.vcpus().iter().all(|vcpu| vcpu.state() == State::Paused), "cycle {cycle}");
        running.resume().unwrap_or_else(|error| panic!("resume {cycle}: {error}"));
    }
    // Gone without a word: every thread must come to its end when the machine is dropped.
}

fn start(arguments: &[&str]) -> Running {
    let line = std::iter::once("vmm").chain(arguments.iter().copied()).map(Into::into);
    let Ok(Invocation::Run { config, .. }) = cli::parse(line) else { panic!("{arguments:?} is no run") };
    let system = System::open().unwrap();
    let with_memory = WithMemory::map(config.resolve().unwrap(), &system).unwrap();
    let with_devices = with_memory.load().unwrap().devices(SharedObserved::default()).unwrap();
    with_devices.vcpus().unwrap().threads().unwrap().start()
}
