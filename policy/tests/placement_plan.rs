// SPDX-License-Identifier: Apache-2.0
//! Placement at start: the documented properties on random hosts, and the wishes that must be refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests are no tests to the lint")]

#[path = "support/placement.rs"]
mod support;

use policy::placement::{Claim, Guest, GuestNode, Mode, Note, PlacementError, Plan, Rule, Rules, Wishes, plan};
use proptest::prelude::*;
use topology::cpu_set::CpuSet;
use topology::guest::{GuestTopology, ShapeRequest, TopologyRequest};
use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode, NodeId};

use support::{GIB, fixture, guest, host, set};

fn wishes(mode: Mode) -> Wishes {
    Wishes { mode, ..Wishes::default() }
}

fn cpus_of(plan: &Plan) -> Vec<u32> {
    plan.places.iter().map(|place| place.decision.to.0).collect()
}

fn auto(host: &HostTopology, guest: &Guest) -> Vec<u32> {
    cpus_of(&plan(host, guest, &Wishes::default()).unwrap())
}

#[test]
fn whole_cores_come_before_siblings() {
    let host = host(1, 1, 4, 1, 2);
    assert_eq!(auto(&host, &guest(6, 1, 6)), [0, 1, 2, 3, 4, 5]);
    let plan = plan(&host, &guest(4, 1, 4), &Wishes::default()).unwrap();
    assert!(plan.places.iter().all(|place| place.decision.rule == Rule::WholeCore));
}

#[test]
fn threads_of_a_guest_core_share_a_host_core() {
    let host = host(1, 1, 4, 1, 2);
    let mut request = TopologyRequest::even(4, 1, GIB).unwrap();
    request.shape = ShapeRequest { threads: Some(2), ..ShapeRequest::default() };
    let guest = Guest::new(&GuestTopology::new(&request).unwrap());
    assert_eq!(auto(&host, &guest), [0, 4, 1, 5]);
}

#[test]
fn a_guest_cluster_goes_to_the_host_cluster_that_it_fills() {
    let host = host(1, 1, 3, 4, 1);
    let claims = vec![Claim { cpus: set("0-1"), exclusive: true }];
    let plan = plan(&host, &guest(6, 1, 4), &Wishes { claims, ..Wishes::default() }).unwrap();
    assert_eq!(cpus_of(&plan), [4, 5, 6, 7, 2, 3]);
    assert!(plan.places.iter().take(4).all(|place| place.decision.rule == Rule::Cluster), "{plan:?}");
}

#[test]
fn guest_nodes_go_to_different_host_nodes() {
    let host = host(2, 1, 4, 1, 1);
    assert_eq!(auto(&host, &guest(4, 2, 4)), [0, 1, 4, 5]);
}

#[test]
fn preferred_cpus_come_first_on_a_hybrid_laptop() {
    let host = fixture(include_str!("../../resources/hosts/laptop-hybrid.txt"));
    assert_eq!(auto(&host, &guest(2, 1, 2)), [4, 6]);
    assert_eq!(auto(&host, &guest(6, 1, 6)), [4, 6, 0, 2, 8, 9]);
}

#[test]
fn spread_alternates_and_pack_fills_cores() {
    let host = host(2, 1, 2, 1, 2);
    assert_eq!(cpus_of(&plan(&host, &guest(3, 1, 3), &wishes(Mode::Spread)).unwrap()), [0, 2, 1]);
    assert_eq!(cpus_of(&plan(&host, &guest(3, 1, 3), &wishes(Mode::Pack)).unwrap()), [0, 4, 1]);
}

#[test]
fn none_decides_nothing_and_pin_obeys() {
    let host = host(1, 1, 4, 1, 1);
    assert_eq!(plan(&host, &guest(2, 1, 2), &wishes(Mode::None)).unwrap().places, []);
    let pinned = plan(&host, &guest(3, 1, 3), &wishes(Mode::Pin(set("1,3")))).unwrap();
    assert!(pinned.places.iter().all(|place| place.affinity == set("1,3") && place.decision.rule == Rule::Pin));
    assert_eq!(pinned.notes, [Note::Shared { cpus: set("1,3") }]);
}

#[test]
fn impossible_wishes_are_refused() {
    let host = fixture(include_str!("../../resources/hosts/holes.txt"));
    let usable = "1-2,4-5,7-8,10-11".to_owned();
    let try_mode = |mode| plan(&host, &guest(2, 1, 2), &wishes(mode)).unwrap_err();
    let absent = PlacementError::PinAbsent { cpus: [HostCpu(3)].into_iter().collect(), usable };
    assert_eq!(try_mode(Mode::Pin(set("1,3"))), absent);
    assert_eq!(try_mode(Mode::Pin(set(""))), PlacementError::PinEmpty);
    let mut bound = guest(1, 1, 1);
    bound.nodes[0].host_node = Some(HostNode(1));
    let (guest_node, existing) = (NodeId(0), "0,2".to_owned());
    let refused = PlacementError::NoSuchNode { guest: guest_node, host: HostNode(1), existing };
    assert_eq!(plan(&host, &bound, &Wishes::default()), Err(refused));
    bound.nodes[0] = GuestNode { id: guest_node, memory_bytes: 20 * GIB, host_node: Some(HostNode(2)) };
    let full =
        PlacementError::NodeFull { guest: guest_node, host: HostNode(2), wanted_bytes: 20 * GIB, free_bytes: 12 * GIB };
    assert_eq!(plan(&host, &bound, &Wishes::default()), Err(full));
    let claims = vec![Claim { cpus: set("0-11"), exclusive: true }];
    let claimed = plan(&host, &guest(1, 1, 1), &Wishes { claims, ..Wishes::default() });
    assert!(matches!(claimed, Err(PlacementError::AllClaimed { .. })));
    let mut stray = guest(2, 1, 2);
    stray.vcpus[1].node = 3;
    let astray = plan(&host, &stray, &Wishes::default());
    assert!(matches!(astray, Err(PlacementError::NoSuchGuestNode { node: 3, nodes: 1, .. })));
    let nobody = Guest { vcpus: Vec::new(), nodes: Vec::new() };
    assert_eq!(plan(&host, &nobody, &Wishes::default()), Err(PlacementError::NoVcpus));
}

#[test]
fn a_cpuset_that_forbids_a_pin_is_named() {
    let host = fixture("== devices/system/cpu/online\n0-3\n== self/affinity\n0-3\n== self/cpuset\n0-1\n");
    let forbidden = PlacementError::PinForbidden { cpus: [HostCpu(2)].into_iter().collect(), usable: "0-1".to_owned() };
    assert_eq!(plan(&host, &guest(1, 1, 1), &wishes(Mode::Pin(set("2")))), Err(forbidden));
}

#[test]
fn claimed_cpus_come_last_and_are_said() {
    let host = host(1, 1, 4, 1, 1);
    let claims = vec![Claim { cpus: set("0-2"), exclusive: false }];
    let rules = Rules { claims: false, ..Rules::default() };
    let off = Wishes { rules, claims: claims.clone(), ..Wishes::default() };
    let ignored = cpus_of(&plan(&host, &guest(2, 1, 2), &off).unwrap());
    let plan = plan(&host, &guest(2, 1, 2), &Wishes { claims, ..Wishes::default() }).unwrap();
    assert_eq!(cpus_of(&plan), [3, 0]);
    assert_eq!(plan.notes, [Note::DoubleBooked { cpus: set("0") }]);
    assert_eq!(ignored, [0, 1]);
}

#[test]
fn without_the_house_rule_vcpus_stay_home() {
    let host = host(2, 1, 2, 1, 1);
    let rules = Rules { house: false, ..Rules::default() };
    let stay = plan(&host, &guest(3, 1, 3), &Wishes { rules, ..Wishes::default() }).unwrap();
    assert!(cpus_of(&stay).iter().all(|&cpu| cpu < 2));
    let spilled = plan(&host, &guest(3, 1, 3), &Wishes::default()).unwrap();
    assert_eq!(cpus_of(&spilled), [0, 1, 2]);
    assert!(matches!(spilled.notes[..], [Note::Spilled { .. }]));
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Auto), Just(Mode::Spread), Just(Mode::Pack)]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(claims, numa, whole_core, cluster, asym)| Rules {
            claims,
            numa,
            whole_core,
            cluster,
            asym,
            ..Rules::default()
        },
    )
}

fn counts(plan: &Plan, host: &HostTopology) -> Vec<usize> {
    let count = |cpu| plan.places.iter().filter(|place| place.decision.to == cpu).count();
    host.usable().iter().map(count).collect()
}

proptest! {
    #[test]
    fn no_two_vcpus_on_one_cpu_while_an_allowed_one_is_empty(
        shape in (1u32..4, 1u32..3, 1u32..3, 1u32..4, 1u32..3), vcpus in 1u32..80, nodes in 1u32..4,
        cluster in 1u32..6, mode in any_mode(), rules in any_rules(),
        claimed in proptest::collection::vec(0u32..16, 0..4),
    ) {
        let host = host(shape.0, shape.1, shape.2, shape.3, shape.4);
        let nodes = nodes.min(vcpus);
        let claims = vec![Claim { cpus: claimed.into_iter().map(HostCpu).collect(), exclusive: false }];
        let plan = plan(&host, &guest(vcpus, nodes, cluster), &Wishes { mode, rules, claims }).unwrap();
        prop_assert_eq!(plan.places.len(), vcpus as usize);
        let counts = counts(&plan, &host);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        prop_assert!(*most <= 1 || *least >= 1, "{:?}", counts);
        prop_assert!(most - least <= 1, "shared unfairly: {:?}", counts);
    }

    #[test]
    fn the_allowed_set_is_obeyed(
        allowed in proptest::collection::btree_set(0u32..16, 1..8), exclusive in 0u32..16, vcpus in 1u32..20,
        mode in any_mode(),
    ) {
        let list: CpuSet<HostCpu> = allowed.into_iter().map(HostCpu).collect();
        let host = fixture(&format!("== devices/system/cpu/online\n0-15\n== self/affinity\n{list}\n"));
        let claims = vec![Claim { cpus: set(&exclusive.to_string()), exclusive: true }];
        let free = list.difference(&claims[0].cpus);
        let plan = plan(&host, &guest(vcpus, 1, vcpus), &Wishes { mode, claims, ..Wishes::default() });
        prop_assert_eq!(plan.is_err(), free.is_empty());
        let Ok(plan) = plan else { return Ok(()) };
        for place in &plan.places {
            prop_assert!(free.contains(place.decision.to) && place.affinity.is_subset(&free));
            prop_assert!(place.affinity.contains(place.decision.to));
        }
    }

    #[test]
    fn a_guest_node_that_fits_stays_in_one_host_node(
        vcpus in 1u32..9, nodes in 1u32..4, cluster in 1u32..5,
    ) {
        let host = host(4, 2, 2, 2, 1);
        let guest = guest(vcpus * nodes, nodes, cluster);
        let plan = plan(&host, &guest, &Wishes::default()).unwrap();
        for (place, vcpu) in plan.places.iter().zip(&guest.vcpus) {
            let home = plan.homes[vcpu.node].host.unwrap();
            prop_assert!(host.nodes()[host.node_index(home).unwrap()].cpus.contains(place.decision.to));
        }
        prop_assert_eq!(plan.notes, []);
    }

    #[test]
    fn the_same_input_gives_the_same_plan(vcpus in 1u32..40, mode in any_mode()) {
        let host = host(2, 2, 2, 2, 2);
        let wishes = wishes(mode);
        prop_assert_eq!(plan(&host, &guest(vcpus, 1, 4), &wishes), plan(&host, &guest(vcpus, 1, 4), &wishes));
    }
}
