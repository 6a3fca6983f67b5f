// SPDX-License-Identifier: Apache-2.0
//! Machines for the tests of the tables and of the doctor.

use proptest::prelude::*;

use super::{IoApic, Platform, PortDevice, PowerPorts};
use crate::cpu_set::CpuSet;
use crate::guest::{GuestTopology, NodeRequest, ShapeRequest, TopologyRequest};
use crate::id::{NodeId, VcpuIndex};
use crate::memory_map::{AddressSpace, MemoryMap};

pub(crate) const GIB: u64 = 1 << 30;

/// The monitor's layout, with room for any machine.
pub(crate) fn platform() -> Platform {
    Platform {
        rsdp_gpa: 0xE_0000,
        tables_gpa: 0xE_0030,
        tables_len_bytes: 16 << 20,
        io_apic: IoApic { id: 0, gpa: 0xFEC0_0000 },
        local_apic_gpa: 0xFEE0_0000,
        serial: PortDevice { port: 0x3F8, gsi: 4 },
        power: PowerPorts { sleep_control: 0x600, sleep_status: 0x601, reset: 0x602, reset_value: 1 },
        event_device: PortDevice { port: 0x603, gsi: 9 },
        pvpanic_port: 0x505,
    }
}

pub(crate) fn map(topology: &GuestTopology) -> MemoryMap {
    MemoryMap::new(topology, &AddressSpace { gap_start: 3 * GIB, gap_end: 4 * GIB, width_bits: 46 }).unwrap()
}

pub(crate) fn even(cpus: u32, nodes: u32) -> TopologyRequest {
    TopologyRequest::even(cpus, nodes, u64::from(nodes) * GIB).unwrap()
}

pub(crate) fn machine(request: &TopologyRequest) -> GuestTopology {
    GuestTopology::new(request).unwrap()
}

/// Two CPUs on two nodes, farther from 1 to 0 than back.
pub(crate) fn lopsided() -> GuestTopology {
    let distances = vec![(NodeId(0), NodeId(1), 21), (NodeId(1), NodeId(0), 31)];
    machine(&TopologyRequest { distances, ..even(2, 2) })
}

/// How CPUs are dealt to nodes.
#[derive(Clone, Copy, Debug)]
enum Deal {
    /// Whole packages, neighbours together.
    Blocks,
    /// Whole packages in turn.
    InTurn,
    /// The dies of a package to different nodes.
    Dies,
}

/// Machines of up to some hundred CPUs: whole packages or dies a node, odd core counts, nodes without CPUs, any
/// distances.
pub(crate) fn machines() -> impl Strategy<Value = GuestTopology> {
    let shape = (1..=2u32, 1..=3u32, 1..=5u32, 1..=2u32);
    let nodes = (1..=5u32, 1..=2u32, 0..=2u32);
    let deal = prop_oneof![Just(Deal::Blocks), Just(Deal::InTurn), Just(Deal::Dies)];
    let rest = (proptest::collection::vec(1..=700_000u64, 7), proptest::collection::vec(11..=254u8, 49), any::<bool>());
    (shape, nodes, deal, rest).prop_map(|(shape, nodes, deal, (pages, far, uniform))| {
        let mut request = dealt(shape, nodes, deal, &pages);
        if !uniform {
            request.distances = every_distance(request.nodes.len(), &far);
        }
        machine(&request)
    })
}

fn dealt(
    (dies, clusters, cores, threads): (u32, u32, u32, u32),
    (with_cpus, packages, without_cpus): (u32, u32, u32),
    deal: Deal,
    pages: &[u64],
) -> TopologyRequest {
    let die = clusters * cores * threads;
    let unit = if matches!(deal, Deal::Dies) { die } else { die * dies };
    let with_cpus = if matches!(deal, Deal::Dies) { with_cpus * dies } else { with_cpus };
    let per_node = if matches!(deal, Deal::Dies) { unit } else { unit * packages };
    let cpus = with_cpus * per_node;
    let node_of = |cpu: u32| match deal {
        Deal::Blocks | Deal::Dies => cpu / per_node,
        Deal::InTurn => cpu / unit % with_cpus,
    };
    let node = |number: u32| NodeRequest {
        cpus: (0..cpus).filter(|cpu| node_of(*cpu) == number).map(VcpuIndex).collect::<CpuSet<_>>(),
        memory_bytes: pages[number as usize % pages.len()] * 4096,
    };
    let sockets = matches!(deal, Deal::Dies).then(|| with_cpus / dies);
    let shape = ShapeRequest {
        sockets,
        dies: Some(dies),
        clusters: Some(clusters),
        cores: Some(cores),
        threads: Some(threads),
    };
    TopologyRequest { cpus, shape, nodes: (0..with_cpus + without_cpus).map(node).collect(), distances: Vec::new() }
}

fn every_distance(nodes: usize, far: &[u8]) -> Vec<(NodeId, NodeId, u8)> {
    let ids = || (0..u32::try_from(nodes).unwrap()).map(NodeId);
    let pairs = ids().flat_map(|from| ids().map(move |to| (from, to))).filter(|(from, to)| from != to);
    pairs.zip(far.iter().cycle()).map(|((from, to), distance)| (from, to, *distance)).collect()
}
