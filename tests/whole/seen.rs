// SPDX-License-Identifier: Apache-2.0
//! What the probe guest says that it sees, against the machine that was asked for.
//!
//! The guest reads CPUID on every vCPU and the ACPI tables in its memory, in code that shares nothing with the code that
//! made them. Invariant: every line of the guest's report is compared, none is skipped.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use probe::record::{Cache, CacheKind as SeenKind, Cpu, Distance, Node, Protocol, Record, Status};
use probe::report::parse_line;
use probe::value::Bytes;
use topology::cache::{CacheKind, CacheScope, CacheSpec};
use topology::guest::{GuestTopology, Position};
use topology::id::{NodeId, VcpuIndex};

/// The records in a guest's output; a line that claims to be one and is none fails the test.
pub(crate) fn records(output: &str) -> Vec<Record> {
    let parsed = output.lines().filter_map(|line| parse_line(line.as_bytes()).map(|record| (line, record)));
    parsed.map(|(line, record)| record.unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// Compares a whole report with the machine it should be of.
pub(crate) fn assert_sees(output: &str, machine: &GuestTopology) {
    let mut seen = Report::default();
    records(output).into_iter().for_each(|record| seen.take(record, machine));
    assert_eq!(seen.cpus, cpus(machine));
    assert_eq!(seen.caches, machine.caches().iter().map(|spec| cache(machine, spec)).collect::<Vec<_>>());
    assert_eq!(seen.nodes, nodes(machine));
    assert_eq!(seen.distances, distances(machine));
    assert_eq!(seen.single, [1; 4], "boot, ready, machine and done come once each");
}

#[derive(Default)]
struct Report {
    cpus: Vec<Cpu>,
    caches: Vec<Cache>,
    nodes: Vec<Node>,
    distances: Vec<Distance>,
    /// How often boot, ready, machine and done came.
    single: [u32; 4],
}

impl Report {
    fn take(&mut self, record: Record, machine: &GuestTopology) {
        let count = machine.vcpu_count();
        match record {
            Record::Boot(boot) => {
                self.single[0] += 1;
                assert_eq!((boot.protocol, boot.cpus), (Protocol::Pvh, count));
            }
            Record::Ready(ready) => {
                self.single[1] += 1;
                assert_eq!((ready.aps, ready.missing), (count - 1, 0));
            }
            Record::Machine(sums) => {
                self.single[2] += 1;
                let nodes = u32::try_from(machine.nodes().len()).unwrap();
                assert_eq!((sums.cpus, sums.nodes, sums.pptt, sums.hmat), (count, nodes, true, true));
                assert!(usable_bytes(machine).contains(&sums.memory_bytes), "{sums}, {:?}", usable_bytes(machine));
            }
            Record::Done(done) => {
                self.single[3] += 1;
                assert_eq!(done.status, Status::Ok);
            }
            Record::Cpu(cpu) => self.cpus.push(cpu),
            Record::Cache(cache) => self.caches.push(cache),
            Record::Node(node) => self.nodes.push(node),
            Record::Distance(distance) => self.distances.push(distance),
            Record::Missing(_) | Record::Error(_) | Record::Waiting(_) | Record::Worker(_) | Record::Outcome(_) => {
                panic!("not part of a report: {record}")
            }
        }
    }
}

/// What the boot memory map may hold: all but the legacy hole, and but what large tables take of the RAM.
fn usable_bytes(machine: &GuestTopology) -> RangeInclusive<u64> {
    let most = machine.memory_bytes() - (0x10_0000 - 0x9_FC00);
    most - (2 << 20)..=most
}

fn cpus(machine: &GuestTopology) -> Vec<Cpu> {
    let numbers: Vec<Numbers> = machine.caches().iter().map(|spec| Numbers::of(machine, spec)).collect();
    let number = |slot: usize, cpu| numbers.get(slot).map(|numbers| numbers.0[&cpu]);
    let seen = |cpu: VcpuIndex| {
        let Position { package, die, cluster, core, thread } = machine.position(cpu);
        Cpu {
            index: cpu.0,
            apic_id: machine.apic_id(cpu).0,
            package,
            die,
            cluster,
            core,
            thread,
            node: Some(machine.node_of(cpu).0),
            l1d: number(0, cpu),
            l1i: number(1, cpu),
            l2: number(2, cpu),
            l3: number(3, cpu),
        }
    };
    machine.vcpus().map(seen).collect()
}

/// Which cache of a kind each CPU has, numbered in the order of the first CPU that has it.
struct Numbers(BTreeMap<VcpuIndex, u32>);

impl Numbers {
    fn of(machine: &GuestTopology, spec: &CacheSpec) -> Self {
        let scope = machine.cache_scope(spec);
        let mut units: Vec<Position> = Vec::new();
        let mut number = |cpu| {
            let unit = first_of(machine.position(cpu), scope);
            let known = units.iter().position(|other| *other == unit).unwrap_or_else(|| {
                units.push(unit);
                units.len() - 1
            });
            (cpu, u32::try_from(known).unwrap())
        };
        Self(machine.vcpus().map(&mut number).collect())
    }

    fn count(&self) -> u32 {
        self.0.values().max().unwrap() + 1
    }
}

/// Written out here again, so that a fault in the machine's own function does not judge itself.
fn first_of(position: Position, scope: CacheScope) -> Position {
    let Position { package, die, cluster, core, .. } = position;
    let (cluster, core) = match scope {
        CacheScope::Core => (cluster, core),
        CacheScope::Cluster => (cluster, 0),
        CacheScope::Die => (0, 0),
    };
    Position { package, die, cluster, core, thread: 0 }
}

fn cache(machine: &GuestTopology, spec: &CacheSpec) -> Cache {
    Cache {
        level: spec.level,
        kind: match spec.kind {
            CacheKind::Data => SeenKind::Data,
            CacheKind::Instruction => SeenKind::Instruction,
            CacheKind::Unified => SeenKind::Unified,
        },
        bytes: spec.size_bytes,
        line_bytes: spec.line_bytes,
        ways: spec.ways,
        count: Numbers::of(machine, spec).count(),
        uniform: true,
    }
}

fn nodes(machine: &GuestTopology) -> Vec<Node> {
    let on_node = |id| machine.vcpus().filter(|cpu| machine.node_of(*cpu) == id).count();
    let node = |node: &topology::guest::Node| Node {
        id: node.id.0,
        cpus: u32::try_from(on_node(node.id)).unwrap(),
        memory_bytes: node.memory_bytes,
    };
    machine.nodes().iter().map(node).collect()
}

fn distances(machine: &GuestTopology) -> Vec<Distance> {
    let ids: Vec<NodeId> = machine.nodes().iter().map(|node| node.id).collect();
    let row = |from: &NodeId| {
        let from = *from;
        let values = ids.iter().map(move |to| machine.distance(from, *to));
        Distance { from: from.0, to: 0, values: Bytes::new(values) }
    };
    ids.iter().map(row).collect()
}
