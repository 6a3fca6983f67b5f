// SPDX-License-Identifier: Apache-2.0
//! What the placement engine costs: a rebalancing pass, and a start placement, on hosts of growing size.
//!
//! `cargo bench -p policy --bench placement`. Goals: a pass below 50 µs at 32 vCPUs on 128 CPUs, below 2 ms at 512 on
//! 1024, and no faster growth than n log n.
//!
//! Two boards: `calm`, where nothing has to move, and `storm`: half of the vCPUs on the wrong node, a
//! third of them disturbed, SMT siblings shared, so that every rule has candidates and the pass moves all it may.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use policy::placement::{
    Balancer, Config, CpuLoad, FULL, Guest, GuestCpu, GuestNode, Rules, Snapshot, VcpuLoad, Wishes, plan,
};
use policy::time::Nanos;
use topology::host::{HostShape, HostTopology};
use topology::id::{HostCpu, NodeId};

/// (vCPUs, host CPUs, nodes)
const SIZES: [(u32, u32, u32); 4] = [(32, 128, 2), (128, 256, 4), (256, 512, 8), (512, 1024, 16)];

fn host(cpus: u32, nodes: u32) -> HostTopology {
    let cores = cpus / nodes / 2 / 8;
    let shape = HostShape { nodes, llcs: 2, clusters: 4, cores, threads: 2, node_memory_bytes: 64 << 30 };
    shape.build().expect("a regular shape builds")
}

fn guest(vcpus: u32, nodes: u32) -> Guest {
    let node = |id| GuestNode { id: NodeId(id), memory_bytes: 1 << 30, host_node: None };
    let cpu = |index: u32| GuestCpu { node: (index * nodes / vcpus) as usize, cluster: index / 4, core: index };
    Guest { vcpus: (0..vcpus).map(cpu).collect(), nodes: (0..nodes).map(node).collect() }
}

struct Board {
    vcpus: Vec<VcpuLoad>,
    cpus: Vec<CpuLoad>,
    memory: Vec<Vec<u64>>,
}

fn board(host: &HostTopology, vcpus: u32, nodes: u32, storm: bool) -> Board {
    let count = u32::try_from(host.cpus().len()).expect("a host has fewer than 2^32 CPUs");
    let per_node = count / 2 / nodes;
    let place = |index: u32| {
        let node = index * nodes / vcpus;
        let wrong = storm && index.is_multiple_of(2);
        let node = if wrong { (node + 1) % nodes } else { node };
        // Its own place in the node; on the second thread if it came from elsewhere.
        let cpu = node * per_node + index % (vcpus / nodes).min(per_node);
        HostCpu(if wrong { cpu + count / 2 } else { cpu })
    };
    let load = |index: u32| {
        let waiting = if storm && index.is_multiple_of(3) { FULL / 3 } else { 0 };
        VcpuLoad { cpu: place(index), running: FULL - waiting, waiting }
    };
    let vcpus: Vec<VcpuLoad> = (0..vcpus).map(load).collect();
    let mut cpus = vec![CpuLoad { mean_idle_ns: u64::MAX, ..CpuLoad::default() }; host.cpus().len()];
    for load in &vcpus {
        if let Some(cpu) = host.index_of(load.cpu) {
            cpus[cpu].utilisation = FULL;
            cpus[cpu].average = FULL;
        }
    }
    let memory = (0..nodes).map(|guest| (0..nodes).map(|node| u64::from(node == guest) << 30).collect()).collect();
    Board { vcpus, cpus, memory }
}

fn passes(c: &mut Criterion) {
    let mut group = c.benchmark_group("pass");
    for (name, storm) in [("calm", false), ("storm", true)] {
        for (vcpus, cpus, nodes) in SIZES {
            let host = host(cpus, nodes);
            let board = board(&host, vcpus, nodes, storm);
            // Without the rate limit every pass looks at everything, and a moved vCPU may move again at once.
            let rules = Rules { rate_limit: false, ..Rules::default() };
            let config = Config { rules, settle_ns: 0, ..Config::default() };
            let mut balancer = Balancer::new(host.clone(), guest(vcpus, nodes), config, Nanos(0));
            let snapshot =
                Snapshot { now: Nanos(1), vcpus: &board.vcpus, cpus: &board.cpus, memory: &board.memory, pairs: &[] };
            let moves = balancer.pass(&snapshot).moves.len();
            assert_eq!(moves > 0, storm, "{moves} moves on the {name} board of {vcpus} vCPUs");
            group.bench_function(BenchmarkId::new(name, format!("{vcpus}_on_{cpus}")), |bencher| {
                bencher.iter(|| balancer.pass(black_box(&snapshot)));
            });
        }
    }
    group.finish();
}

fn plans(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    for (vcpus, cpus, nodes) in SIZES {
        let (host, guest) = (host(cpus, nodes), guest(vcpus, nodes));
        group.bench_function(format!("{vcpus}_on_{cpus}"), |bencher| {
            bencher.iter(|| plan(black_box(&host), black_box(&guest), &Wishes::default()));
        });
    }
    group.finish();
}

criterion_group!(benches, passes, plans);
criterion_main!(benches);
