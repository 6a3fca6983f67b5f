// SPDX-License-Identifier: Apache-2.0
//! Machines of many shapes, each booted with the probe guest, which must see what was asked for.
//!
//! The shape is written down here a second time, as numbers, so that a change of how a request is understood is seen.

use libtest_mimic::Trial;
use topology::guest::{GuestTopology, Shape};
use vmm::config::cli::{self, Invocation};
use vmm::kvm::system::System;
use vmm::vm::assembly;

use crate::monitor::Monitor;
use crate::{Missing, kvm, seen, trial};

/// The report without its table: half the output, and the half that is compared.
const REPORT: [&str; 2] = ["--probe", "report report=lines"];

struct Case {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Packages, dies, clusters, cores, threads: the levels of the largest package.
    shape: [u32; 5],
    /// NUMA nodes.
    nodes: usize,
    /// Highest APIC id.
    highest: u32,
}

const CASES: &[Case] = &[
    Case { name: "1_cpu", arguments: &[], shape: [1, 1, 1, 1, 1], nodes: 1, highest: 0 },
    Case { name: "2_cpus", arguments: &["--cpus=2"], shape: [1, 1, 1, 2, 1], nodes: 1, highest: 1 },
    Case { name: "3_cpus", arguments: &["--cpus=3"], shape: [1, 1, 1, 3, 1], nodes: 1, highest: 2 },
    Case {
        name: "7_cpus_on_2_nodes",
        arguments: &["--cpus=7", "--numa=2"],
        shape: [2, 1, 1, 4, 1],
        nodes: 2,
        highest: 6,
    },
    Case {
        name: "32_cpus_on_4_nodes",
        arguments: &["--cpus=32", "--numa=4"],
        shape: [4, 1, 1, 8, 1],
        nodes: 4,
        highest: 31,
    },
    Case {
        name: "96_cpus_on_2_nodes",
        arguments: &["--cpus=96", "--numa=2"],
        shape: [2, 1, 1, 48, 1],
        nodes: 2,
        highest: 111,
    },
    Case { name: "255_cpus", arguments: &["--cpus=255,cores=1"], shape: [255, 1, 1, 1, 1], nodes: 1, highest: 254 },
    Case { name: "threads", arguments: &["--cpus=8,threads=2"], shape: [1, 1, 1, 4, 2], nodes: 1, highest: 7 },
    Case {
        name: "clusters_of_2",
        arguments: &["--cpus=16,sockets=2,clusters=4,cores=2"],
        shape: [2, 1, 4, 2, 1],
        nodes: 1,
        highest: 15,
    },
    Case {
        name: "clusters_of_4",
        arguments: &["--cpus=16,clusters=4,cores=4"],
        shape: [1, 1, 4, 4, 1],
        nodes: 1,
        highest: 15,
    },
    Case {
        name: "2_dies_of_threads",
        arguments: &["--cpus=16,sockets=2,dies=2,cores=2,threads=2"],
        shape: [2, 2, 1, 2, 2],
        nodes: 1,
        highest: 15,
    },
    Case {
        name: "3_cores_a_cluster",
        arguments: &["--cpus=24,sockets=2,dies=2,clusters=2,cores=3"],
        shape: [2, 2, 2, 3, 1],
        nodes: 1,
        highest: 30,
    },
    Case {
        name: "every_level_at_once",
        arguments: &["--cpus=32,sockets=2,dies=2,clusters=2,cores=2,threads=2", "--numa=2"],
        shape: [2, 2, 2, 2, 2],
        nodes: 2,
        highest: 31,
    },
    Case {
        name: "4_nodes_with_asymmetric_distances",
        arguments: &[
            "--cpus=8",
            "--numa=cpus=[0-1],memory=64M",
            "--numa=cpus=[2-3],memory=96M",
            "--numa=cpus=[4-5],memory=128M",
            "--numa=cpus=[6-7],memory=33M",
            "--numa-distance=0:1=15",
            "--numa-distance=1:0=25",
            "--numa-distance=0:2=30",
            "--numa-distance=0:3=254",
            "--numa-distance=1:2=16",
            "--numa-distance=1:3=32",
            "--numa-distance=2:3=11",
            "--numa-distance=3:2=12",
        ],
        shape: [4, 1, 1, 2, 1],
        nodes: 4,
        highest: 7,
    },
    Case {
        name: "a_node_without_cpus",
        arguments: &[
            "--cpus=4",
            "--numa=cpus=[0-3],memory=128M",
            "--numa=cpus=[],memory=64M",
            "--numa-distance=0:1=17",
        ],
        shape: [1, 1, 1, 4, 1],
        nodes: 2,
        highest: 3,
    },
    Case {
        name: "64_nodes",
        arguments: &["--cpus=64", "--numa=64", "--memory=1G"],
        shape: [64, 1, 1, 1, 1],
        nodes: 64,
        highest: 63,
    },
    Case {
        name: "memory_on_both_sides_of_the_gap",
        arguments: &["--cpus=2", "--numa=2", "--memory=6G"],
        shape: [2, 1, 1, 1, 1],
        nodes: 2,
        highest: 1,
    },
];

const WIDE: Case =
    Case { name: "300_cpus", arguments: &["--cpus=300,cores=1"], shape: [300, 1, 1, 1, 1], nodes: 1, highest: 299 };

/// A test for each machine.
pub(crate) fn trials() -> Vec<Trial> {
    let all = CASES.iter().map(|case| (case, kvm as fn() -> Missing)).chain([(&WIDE, wide_ids as fn() -> Missing)]);
    all.map(|(case, missing)| trial(format!("guest_sees_{}", case.name), missing, || check(case))).collect()
}

fn check(case: &Case) {
    // The guest is given the caches of its host.
    let host = System::open().unwrap().supported_cpuid().unwrap();
    let (machine, _) = assembly::shape(asked_for(case.arguments), &host).unwrap();
    let Shape { packages, dies, clusters, cores, threads } = *machine.shape();
    assert_eq!([packages, dies, clusters, cores, threads], case.shape);
    assert_eq!((machine.nodes().len(), machine.highest_apic_id().0), (case.nodes, case.highest));
    let ended = Monitor::new(case.arguments.iter().chain(&REPORT)).run().expect(0);
    seen::assert_sees(&ended.output, &machine);
}

/// The machine that a command line asks for.
fn asked_for(arguments: &[&str]) -> GuestTopology {
    let line = std::iter::once("vmm").chain(arguments.iter().copied()).map(Into::into);
    let Ok(Invocation::Run { config, .. }) = cli::parse(line) else { panic!("{arguments:?} is no run") };
    config.resolve().unwrap().topology
}

/// For a machine whose APIC ids need x2APIC.
fn wide_ids() -> Missing {
    kvm().or_else(|| {
        let system = System::open().unwrap();
        let (vcpus, ids) = (system.max_vcpus(), system.max_vcpu_id());
        (vcpus < 300 || ids < 300)
            .then(|| format!("this host's KVM allows {vcpus} vCPUs and ids below {ids}, the test needs 300"))
    })
}
