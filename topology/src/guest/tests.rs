// SPDX-License-Identifier: Apache-2.0
//! Examples that a reader can check by hand, and one example for every fault.

use super::*;
use TopologyError as E;

const GIB: u64 = 1 << 30;

fn even(cpus: u32, nodes: u32) -> TopologyRequest {
    TopologyRequest::even(cpus, nodes, u64::from(nodes) * GIB).unwrap()
}

fn node(cpus: &str, memory_bytes: u64) -> NodeRequest {
    NodeRequest { cpus: cpus.parse().unwrap(), memory_bytes }
}

fn shape(sockets: u32, dies: u32, clusters: u32, cores: u32, threads: u32) -> ShapeRequest {
    let given = |count| (count > 0).then_some(count);
    ShapeRequest {
        sockets: given(sockets),
        dies: given(dies),
        clusters: given(clusters),
        cores: given(cores),
        threads: given(threads),
    }
}

fn counts(machine: &GuestTopology) -> [u32; 5] {
    let Shape { packages, dies, clusters, cores, threads } = *machine.shape();
    [packages, dies, clusters, cores, threads]
}

fn fault(request: &TopologyRequest) -> TopologyError {
    GuestTopology::new(request).unwrap_err()
}

#[test]
fn cpus_alone_are_cores_of_one_package() {
    let machine = GuestTopology::new(&even(6, 1)).unwrap();
    assert_eq!(counts(&machine), [1, 1, 1, 6, 1]);
    assert!(machine.vcpus().all(|cpu| machine.apic_id(cpu) == ApicId(cpu.0)));
}

#[test]
fn thirty_two_cpus_on_four_nodes_are_four_packages() {
    let machine = GuestTopology::new(&even(32, 4)).unwrap();
    assert_eq!(counts(&machine), [4, 1, 1, 8, 1]);
    for cpu in machine.vcpus() {
        assert_eq!(machine.node_of(cpu), NodeId(cpu.0 / 8));
        assert_eq!(machine.position(cpu).package, cpu.0 / 8);
        assert_eq!(machine.apic_id(cpu), ApicId(cpu.0));
    }
    assert_eq!(machine.nodes()[2].cpus.to_string(), "16-23");
}

#[test]
fn seven_cpus_on_two_nodes_are_packages_of_four_and_three() {
    let machine = GuestTopology::new(&even(7, 2)).unwrap();
    assert_eq!(counts(&machine), [2, 1, 1, 4, 1]);
    let ids: Vec<u32> = machine.vcpus().map(|cpu| machine.apic_id(cpu).0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
    let five = GuestTopology::new(&even(5, 2)).unwrap();
    let ids: Vec<u32> = five.vcpus().map(|cpu| five.apic_id(cpu).0).collect();
    assert_eq!(ids, [0, 1, 2, 4, 5], "three cores take two bits, so package 1 starts at 4");
}

#[test]
fn nodes_of_scattered_cpus_are_packages_and_cpu_0_has_apic_id_0() {
    let request = TopologyRequest { cpus: 4, nodes: vec![node("1,3", GIB), node("0,2", GIB)], ..Default::default() };
    let machine = GuestTopology::new(&request).unwrap();
    let ids: Vec<u32> = machine.vcpus().map(|cpu| machine.apic_id(cpu).0).collect();
    assert_eq!(ids, [0, 2, 1, 3]);
    assert_eq!(machine.node_of(VcpuIndex(0)), NodeId(1));
}

#[test]
fn missing_counts_are_derived_cores_before_sockets() {
    for (cpus, asked, want) in [
        (12, shape(0, 0, 0, 0, 2), [1, 1, 1, 6, 2]),
        (12, shape(2, 0, 0, 0, 0), [2, 1, 1, 6, 1]),
        (12, shape(0, 0, 0, 3, 0), [4, 1, 1, 3, 1]),
        (12, shape(2, 0, 0, 3, 0), [2, 1, 1, 3, 2]),
        (12, shape(0, 0, 4, 0, 0), [1, 1, 4, 3, 1]),
        (32, shape(2, 1, 2, 4, 2), [2, 1, 2, 4, 2]),
        (24, shape(0, 3, 0, 0, 2), [1, 3, 1, 4, 2]),
    ] {
        let machine = GuestTopology::new(&TopologyRequest { shape: asked, ..even(cpus, 1) }).unwrap();
        assert_eq!(counts(&machine), want, "{asked:?}");
    }
}

#[test]
fn cores_given_make_several_packages_a_node() {
    let machine = GuestTopology::new(&TopologyRequest { shape: shape(0, 0, 0, 2, 2), ..even(16, 2) }).unwrap();
    assert_eq!(counts(&machine), [4, 1, 1, 2, 2]);
}

#[test]
fn clusters_of_three_cores_share_l2_and_leave_holes_in_the_ids() {
    let machine = GuestTopology::new(&TopologyRequest { shape: shape(0, 0, 4, 0, 0), ..even(12, 1) }).unwrap();
    let ids: Vec<u32> = machine.vcpus().map(|cpu| machine.apic_id(cpu).0).collect();
    assert_eq!(ids, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14]);
    let l2 = machine.caches()[2];
    assert_eq!(machine.cache_scope(&l2), CacheScope::Cluster);
    assert_eq!(machine.siblings(VcpuIndex(4), CacheScope::Cluster).to_string(), "3-5");
}

#[test]
fn one_package_may_have_a_die_a_node() {
    let machine = GuestTopology::new(&TopologyRequest { shape: shape(1, 4, 0, 0, 0), ..even(32, 4) }).unwrap();
    assert_eq!(counts(&machine), [1, 4, 1, 8, 1]);
    assert_eq!(machine.siblings(VcpuIndex(9), CacheScope::Die), machine.nodes()[1].cpus);
}

#[test]
fn ids_beyond_254_need_x2apic() {
    let limits = ApicLimits { x2apic: false, id_count: 4096, vcpu_count: 4096 };
    assert_eq!(GuestTopology::new(&even(255, 1)).unwrap().check_apic(&limits), Ok(()));
    let many = GuestTopology::new(&even(300, 1)).unwrap();
    assert_eq!(many.check_apic(&limits), Err(ApicError::NeedsX2apic { highest: ApicId(299) }));
    assert_eq!(many.check_apic(&ApicLimits { x2apic: true, ..limits }), Ok(()));
}

#[test]
fn memory_is_dealt_in_2_mib_and_all_of_it() {
    let request = TopologyRequest::even(4, 3, GIB).unwrap();
    let bytes: Vec<u64> = request.nodes.iter().map(|node| node.memory_bytes).collect();
    assert_eq!(bytes, [170 << 21, 170 << 21, 172 << 21]);
    let small = TopologyRequest::even(2, 2, 3 * PAGE_BYTES).unwrap();
    assert_eq!(small.nodes[1].memory_bytes, 2 * PAGE_BYTES);
}

#[test]
fn a_node_may_have_memory_only() {
    let request = TopologyRequest { cpus: 2, nodes: vec![node("0-1", GIB), node("", GIB)], ..Default::default() };
    let machine = GuestTopology::new(&request).unwrap();
    assert!(machine.nodes()[1].cpus.is_empty());
    assert_eq!(machine.shape().packages, 1);
    assert_eq!(machine.memory_bytes(), 2 * GIB);
}

#[test]
fn distances_default_to_20_or_are_complete() {
    let (a, b, c) = (NodeId(0), NodeId(1), NodeId(2));
    let with = |distances: &[(NodeId, NodeId, u8)]| {
        GuestTopology::new(&TopologyRequest { distances: distances.to_vec(), ..even(3, 3) })
    };
    let machine = with(&[]).unwrap();
    assert_eq!((machine.distance(a, a), machine.distance(a, c)), (10, 20));
    let machine = with(&[(a, b, 21), (b, a, 31), (a, c, 40), (c, b, 50), (a, a, 10)]).unwrap();
    assert_eq!((machine.distance(a, b), machine.distance(b, a)), (21, 31), "asymmetric when both are given");
    assert_eq!((machine.distance(c, a), machine.distance(b, c)), (40, 50), "one direction stands for both");
    assert_eq!(with(&[(a, b, 21), (b, c, 21)]).unwrap_err(), E::DistanceMissing { from: a, to: c });
}

#[test]
fn every_distance_fault_has_its_error() {
    let (a, b) = (NodeId(0), NodeId(1));
    let with = |given| fault(&TopologyRequest { distances: given, ..even(2, 2) });
    assert_eq!(with(vec![(a, b, 9)]), E::DistanceTooShort { from: a, to: b, distance: 9 });
    assert_eq!(with(vec![(a, b, 10)]), E::RemoteIsLocal { from: a, to: b });
    assert_eq!(with(vec![(a, b, 255)]), E::Unreachable { from: a, to: b });
    assert_eq!(with(vec![(b, b, 11)]), E::SelfDistance { node: b, distance: 11 });
    assert_eq!(with(vec![(a, NodeId(2), 20)]), E::DistanceWithoutNode { from: a, to: NodeId(2), nodes: 2 });
    assert_eq!(with(vec![(a, b, 20), (a, b, 21)]), E::DistanceTwice { from: a, to: b, first: 20, second: 21 });
}

#[test]
fn every_count_fault_has_its_error() {
    let asked = |cpus, asked| fault(&TopologyRequest { cpus, shape: asked, ..even(8, 1) });
    assert_eq!(asked(0, shape(0, 0, 0, 0, 0)), E::NoCpus);
    assert_eq!(asked(4097, shape(0, 0, 0, 0, 0)), E::TooManyCpus { cpus: 4097 });
    let zero = ShapeRequest { dies: Some(0), ..Default::default() };
    assert_eq!(asked(8, zero), E::ZeroCount { level: "dies" });
    let ten = E::ShapeMismatch { cpus: 8, sockets: 1, dies: 1, clusters: 1, cores: 5, threads: 2, product: 10 };
    assert_eq!(asked(8, shape(1, 0, 0, 5, 2)), ten);
    let nine = E::ShapeMismatch { cpus: 8, sockets: 1, dies: 3, clusters: 3, cores: 1, threads: 1, product: 9 };
    assert_eq!(asked(8, shape(0, 3, 3, 0, 0)), nine);
    let huge = asked(8, shape(u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX));
    assert!(matches!(huge, E::ShapeMismatch { product: u64::MAX, .. }));
    let uneven = fault(&TopologyRequest { shape: shape(0, 0, 0, 0, 2), ..even(7, 2) });
    assert_eq!(uneven, E::NodeShapeMismatch { node: NodeId(1), cpus: 3, unit: 2 });
    let wide = fault(&TopologyRequest { shape: shape(1, 1, 17, 17, 9), ..even(17 * 17 * 9, 1) });
    assert_eq!(wide, E::DieTooWide { bits: 14 });
}

#[test]
fn every_node_fault_has_its_error() {
    let with = |nodes| fault(&TopologyRequest { cpus: 4, nodes, ..Default::default() });
    assert_eq!(with(Vec::new()), E::NodeCount { nodes: 0 });
    assert_eq!(with(vec![node("0-3", GIB); 65]), E::NodeCount { nodes: 65 });
    assert_eq!(TopologyRequest::even(1, 65, GIB), Err(E::NodeCount { nodes: 65 }));
    assert_eq!(TopologyRequest::even(u32::MAX, 1, GIB), Err(E::TooManyCpus { cpus: u32::MAX }));
    assert_eq!(with(vec![node("0-4", GIB)]), E::NoSuchCpu { node: NodeId(0), cpu: VcpuIndex(4), cpus: 4 });
    let overlap = E::NodesOverlap { cpu: VcpuIndex(2), first: NodeId(0), second: NodeId(1) };
    assert_eq!(with(vec![node("0-2", GIB), node("2-3", GIB)]), overlap);
    let uncovered = E::CpusWithoutNode { cpus: "1,3".parse().unwrap() };
    assert_eq!(with(vec![node("0,2", GIB)]), uncovered);
    assert_eq!(with(vec![node("0-3", 0)]), E::NoMemory);
    assert_eq!(with(vec![node("0-3", GIB), node("", 0)]), E::NodeWithoutMemory { node: NodeId(1) });
    assert_eq!(with(vec![node("0-3", 4097)]), E::MemoryNotPages { node: NodeId(0), bytes: 4097 });
    assert_eq!(with(vec![node("0-3", !4095), node("", GIB)]), E::TooMuchMemory);
}

#[test]
fn a_node_boundary_inside_a_shared_unit_is_refused_with_the_smallest_unit() {
    let cut = |asked| {
        let nodes = vec![node("0-2", GIB), node("3-7", GIB)];
        fault(&TopologyRequest { cpus: 8, shape: asked, nodes, ..Default::default() })
    };
    let at = (VcpuIndex(2), VcpuIndex(3), NodeId(0), NodeId(1));
    let (first, second, first_node, second_node) = at;
    assert_eq!(cut(shape(1, 0, 0, 4, 2)), E::NodeSplitsCore { first, second, first_node, second_node });
    assert_eq!(cut(shape(1, 0, 4, 2, 1)), E::NodeSplitsCluster { first, second, first_node, second_node });
    let first = VcpuIndex(0);
    assert_eq!(cut(shape(1, 0, 0, 8, 1)), E::NodeSplitsDie { first, second, first_node, second_node });
    assert!(cut(shape(1, 0, 0, 8, 1)).to_string().contains("dies="), "the message names the remedy");
}
