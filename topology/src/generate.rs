// SPDX-License-Identifier: Apache-2.0
//! Machines of every kind, for property tests of this crate.
//!
//! Invariant: what is generated is valid, so a property may unwrap it.

use proptest::prelude::*;

use crate::guest::{GuestTopology, NodeRequest, PAGE_BYTES, ShapeRequest, TopologyRequest};
use crate::id::{NodeId, VcpuIndex};

/// Requests with explicit counts, some with a node a package or a die, and requests of CPUs dealt evenly to nodes; up to
/// 432 CPUs, some nodes without CPUs, some with random asymmetric distances.
pub(crate) fn request() -> impl Strategy<Value = TopologyRequest> {
    let grouped = (1u32..5, 1u32..4, 1u32..4, 1u32..7, 1u32..4, 0u32..3);
    let shaped = grouped.prop_map(|(sockets, dies, clusters, cores, threads, nodes)| {
        let shape = ShapeRequest {
            sockets: Some(sockets),
            dies: Some(dies),
            clusters: Some(clusters),
            cores: Some(cores),
            threads: Some(threads),
        };
        let nodes = [1, sockets, sockets * dies][nodes as usize];
        let cpus = sockets * dies * clusters * cores * threads;
        TopologyRequest { shape, ..TopologyRequest::even(cpus, nodes, 1 << 30).unwrap() }
    });
    let dealt = (1u32..97, 1u32..9).prop_map(|(cpus, nodes)| TopologyRequest::even(cpus, nodes, 1 << 30).unwrap());
    let pages = proptest::collection::vec(1u64..1 << 21, 66);
    let distances = proptest::option::of(proptest::collection::vec(11u8..255, 64 * 64));
    (prop_oneof![shaped, dealt], pages, any::<bool>(), distances).prop_map(|(mut request, pages, more, distances)| {
        if more {
            request.nodes.push(NodeRequest::default());
        }
        for (node, pages) in request.nodes.iter_mut().zip(pages) {
            node.memory_bytes = pages * PAGE_BYTES;
        }
        let count = u32::try_from(request.nodes.len()).unwrap();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (NodeId(from), NodeId(to))));
        let pairs = pairs.filter(|(from, to)| from != to).zip(distances.into_iter().flatten());
        request.distances = pairs.map(|((from, to), distance)| (from, to, distance)).collect();
        request
    })
}

/// The machines of [`request`].
pub(crate) fn machine() -> impl Strategy<Value = GuestTopology> {
    request().prop_map(|request| GuestTopology::new(&request).unwrap())
}

proptest! {
    #[test]
    fn every_cpu_has_one_apic_id_and_one_node(machine in machine()) {
        let mut ids: Vec<_> = machine.vcpus().map(|cpu| machine.apic_id(cpu)).collect();
        prop_assert_eq!(ids[0].0, 0, "the boot CPU has id 0");
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), machine.vcpus().len());
        for cpu in machine.vcpus() {
            let holders: Vec<NodeId> =
                machine.nodes().iter().filter(|node| node.cpus.contains(cpu)).map(|node| node.id).collect();
            prop_assert_eq!(holders, vec![machine.node_of(cpu)]);
            prop_assert_eq!(machine.apic_layout().position(machine.apic_id(cpu)), machine.position(cpu));
        }
    }

    #[test]
    fn distances_are_a_full_matrix(machine in machine()) {
        for from in machine.nodes() {
            for to in machine.nodes() {
                let distance = machine.distance(from.id, to.id);
                prop_assert_eq!(distance == 10, from.id == to.id);
                prop_assert!((10..255).contains(&distance));
            }
        }
    }

    #[test]
    fn cpus_are_numbered_thread_fastest_within_a_package(machine in machine()) {
        let mut last: Option<(VcpuIndex, u32)> = None;
        for cpu in machine.vcpus() {
            let id = machine.apic_id(cpu).0;
            if let Some((_, before)) = last.filter(|(other, _)| machine.position(*other).package == machine.position(cpu).package) {
                prop_assert!(id > before);
            }
            last = Some((cpu, id));
        }
    }

    #[test]
    fn no_request_panics(
        cpus in 0u32..300, nodes in 0u32..70, counts in proptest::array::uniform5(proptest::option::of(0u32..40)),
        memory in any::<u64>(),
    ) {
        let [sockets, dies, clusters, cores, threads] = counts;
        let shape = ShapeRequest { sockets, dies, clusters, cores, threads };
        if let Ok(request) = TopologyRequest::even(cpus, nodes, memory) {
            let _ = GuestTopology::new(&TopologyRequest { shape, ..request });
        }
    }
}
