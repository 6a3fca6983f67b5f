// SPDX-License-Identifier: Apache-2.0
//! How many events of the model a second brings, at 128 CPUs under every arm and at 1024 CPUs with 2048 vCPUs.
//!
//! A case is a whole run of some simulated milliseconds, the making of its world included; how many events that is, is
//! counted before. `resources/scenarios/size-1024-cpus.toml` is the large case for a whole second.

#![expect(clippy::unwrap_used, reason = "a benchmark: a failed unwrap is a failed run")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use policy::pause::PauseConfig;
use sim::engine::{Trace, World};
use sim::guest::{Action, Arm, LockKind, Op, Placing, Ple, Source, Span, Spread, Vm};
use sim::host::{HostModel, HostParams};
use topology::host::HostShape;

/// vCPUs of each VM.
const VCPUS: usize = 32;

fn vm(arm: Arm) -> Vm {
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
        vcpus: VCPUS,
        programs: programs.collect(),
        locks: vec![LockKind::Queued; 5],
        cpus: Vec::new(),
        placing: Placing::Free,
        memory: Vec::new(),
        resident_bytes: 1 << 30,
        private: false,
        native: false,
        arm,
        ple: Ple::default(),
    }
}

/// One run; how many events it was.
fn run(host: &HostModel, vms: usize, arm: Arm, ns: u64) -> u64 {
    let machines = vec![vm(arm); vms];
    let mut world = World::new(host.clone(), HostParams::default(), machines, 1, Trace::default()).unwrap();
    world.run_until(ns).unwrap();
    world.outcome().events
}

fn case(c: &mut Criterion, name: &str, shape: HostShape, vms: usize, arm: Arm) {
    const NS: u64 = 20_000_000;
    let host = HostModel::new(shape.build().unwrap());
    let mut group = c.benchmark_group(format!("events/{}-cpus-{}-vcpus", host.cpus(), vms * VCPUS));
    group.sample_size(10).throughput(Throughput::Elements(run(&host, vms, arm, NS)));
    group.bench_function(name, |b| b.iter(|| black_box(run(&host, vms, arm, NS))));
}

fn events(c: &mut Criterion) {
    let off = Arm::OFF;
    let kernel = Arm { kernel: true, ..off };
    let policy = Action::Policy(PauseConfig::default());
    let tracepoint = Arm { source: Source::Tracepoint { every: 8 }, action: policy, ..kernel };
    let port = Arm { source: Source::Port { after_ns: 5_000 }, action: policy, ..off };
    let shape = HostShape { nodes: 2, llcs: 2, clusters: 8, cores: 4, threads: 1, node_memory_bytes: 1 << 30 };
    for (name, arm) in [("off", off), ("kernel", kernel), ("act-tracepoint", tracepoint), ("act-port", port)] {
        case(c, name, shape, 4, arm);
    }
    // Without help for spinners an overcommitted host spins and hardly an event comes to pass: no `off` here.
    for (name, arm) in [("kernel", kernel), ("act-tracepoint", tracepoint), ("act-port", port)] {
        case(c, name, shape, 8, arm);
    }
    let large = HostShape { nodes: 8, llcs: 4, clusters: 8, cores: 4, threads: 1, node_memory_bytes: 1 << 30 };
    case(c, "act-tracepoint", large, 64, tracepoint);
}

criterion_group!(benches, events);
criterion_main!(benches);
