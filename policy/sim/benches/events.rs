// SPDX-License-Identifier: Apache-2.0
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the simulator does not")]
//! How many events of the model a second brings: 128 CPUs, and 1024 CPUs with 2048 vCPUs for a simulated second.
//!
//! Prints a line for each case; `cargo bench -p sim`. A case is a whole run, so one measurement suffices.

#![expect(clippy::unwrap_used, reason = "a benchmark: a failed unwrap is a failed run")]

use std::time::Instant;

use policy::pause::PauseConfig;
use sim::engine::{Trace, World};
use sim::guest::{Action, Arm, LockKind, Op, Placing, Ple, Source, Span, Spread, Vm};
use sim::host::{HostModel, HostParams};
use topology::host::HostShape;

fn vm(vcpus: usize, arm: Arm) -> Vm {
    let work = |mean_ns| Op::Work { span: Span { mean_ns, spread: Spread::Exponential }, kernel: true, memory: 0 };
    let take = |lock| [Op::Acquire { lock, halts: false, irqs_off: false }, work(500), Op::Release { lock }];
    let mut program = vec![work(10_000)];
    program.extend(take(0));
    let programs = (0..4).map(|lock| {
        let mut program = program.clone();
        program.extend(take(1 + lock));
        program
    });
    Vm {
        name: "vm".into(),
        vcpus,
        programs: programs.collect(),
        locks: vec![LockKind::Queued; 5],
        cpus: Vec::new(),
        placing: Placing::Free,
        memory: Vec::new(),
        native: false,
        arm,
        ple: Ple::default(),
    }
}

fn run(name: &str, shape: HostShape, vms: usize, vcpus: usize, arm: Arm, ns: u64) {
    let host = HostModel::new(shape.build().unwrap());
    let machines = vec![vm(vcpus, arm); vms];
    let started = Instant::now();
    let mut world = World::new(host, HostParams::default(), machines, 1, Trace::default()).unwrap();
    world.run_until(ns).unwrap();
    let took = started.elapsed().as_secs_f64();
    let events = world.outcome().events;
    #[expect(clippy::cast_precision_loss, reason = "a rate for reading")]
    let rate = events as f64 / took / 1e6;
    println!("{name}: {events} events in {took:.2} s, {rate:.2} M events/s");
}

fn main() {
    let kernel = Arm { kernel: true, bail_out: true, source: Source::None, action: Action::Nothing };
    let act = Arm {
        kernel: true,
        source: Source::Tracepoint { every: 8 },
        action: Action::Policy(PauseConfig::default()),
        ..kernel
    };
    let off = Arm { kernel: false, ..kernel };
    let shape = HostShape { nodes: 2, llcs: 2, clusters: 8, cores: 4, threads: 1, node_memory_bytes: 1 << 30 };
    for (name, arm) in [("off", off), ("kernel", kernel), ("act", act)] {
        run(&format!("128 CPUs, 4 x 32 vCPUs, {name}"), shape, 4, 32, arm, 1_000_000_000);
        run(&format!("128 CPUs, 8 x 32 vCPUs, {name}"), shape, 8, 32, arm, 1_000_000_000);
    }
    let large = HostShape { nodes: 8, llcs: 4, clusters: 8, cores: 4, threads: 1, node_memory_bytes: 1 << 30 };
    run("1024 CPUs, 64 x 32 vCPUs, act", large, 64, 32, act, 1_000_000_000);
}
