// SPDX-License-Identifier: Apache-2.0
//! Golden registers for machines that a reader can work out by hand, and the round trip through what Linux reads.

use proptest::prelude::*;

use super::*;
use crate::cache::{CacheKind, CacheSpec, default_caches};
use crate::generate;
use crate::guest::{ShapeRequest, TopologyRequest};

fn entry(function: u32, registers: [u32; 4]) -> CpuidEntry {
    let [eax, ebx, ecx, edx] = registers;
    CpuidEntry { function, eax, ebx, ecx, edx, ..CpuidEntry::default() }
}

fn subleaf(function: u32, index: u32, registers: [u32; 4]) -> CpuidEntry {
    CpuidEntry { index, indexed: true, ..entry(function, registers) }
}

/// A host of a Xeon's features, with a shape and caches of its own.
fn intel_host() -> Vec<CpuidEntry> {
    parse_dump(include_str!("../../tests/hosts/intel.txt")).unwrap().remove(0)
}

/// A host that has leaf 0x1F, itself a guest of two CPUs.
fn intel_1f_host() -> Vec<CpuidEntry> {
    parse_dump(include_str!("../../tests/hosts/intel_1f.txt")).unwrap().remove(0)
}

/// A host of a Zen 3's features, with a shape and caches of its own.
fn amd_host() -> Vec<CpuidEntry> {
    parse_dump(include_str!("../../tests/hosts/amd.txt")).unwrap().remove(0)
}

fn machine(cpus: u32, nodes: u32, counts: [u32; 5]) -> GuestTopology {
    let [sockets, dies, clusters, cores, threads] = counts.map(|count| (count > 0).then_some(count));
    let shape = ShapeRequest { sockets, dies, clusters, cores, threads };
    let request = TopologyRequest { shape, ..TopologyRequest::even(cpus, nodes, 1 << 30).unwrap() };
    GuestTopology::new(&request).unwrap()
}

fn registers(entries: &[CpuidEntry], function: u32, index: u32) -> [u32; 4] {
    find(entries, function, index).map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]).unwrap()
}

fn all(host: &[CpuidEntry], machine: &GuestTopology) -> Vec<Vec<CpuidEntry>> {
    machine.vcpus().map(|cpu| specialise(host, machine, cpu)).collect()
}

/// Package 1, cluster 1, core 2, thread 0 of 2 packages of 2 clusters of 3 cores of 2 threads:
/// id 1|1|10|0 = 28, shifts 1, 3, 4, 4.
#[test]
fn intel_leaves_of_clusters_of_three_cores() {
    let machine = machine(24, 1, [2, 1, 2, 3, 2]);
    let cpu = VcpuIndex(22);
    let leaves = specialise(&intel_host(), &machine, cpu);
    assert_eq!(machine.apic_id(cpu).0, 28);
    assert_eq!(registers(&leaves, 0, 0)[0], 0x1F, "raised for the module level");
    assert_eq!(registers(&leaves, 1, 0), [0x0005_0654, 0x1C10_0800, 0xF7FA_3203, 0x178B_FBFF]);
    assert_eq!(registers(&leaves, 0xB, 0), [1, 2, 0x100, 28]);
    assert_eq!(registers(&leaves, 0xB, 1), [4, 12, 0x201, 28]);
    assert_eq!(registers(&leaves, 0xB, 2), [0, 0, 0x002, 28]);
    assert_eq!(registers(&leaves, 0x1F, 0), [1, 2, 0x100, 28]);
    assert_eq!(registers(&leaves, 0x1F, 1), [3, 6, 0x201, 28]);
    assert_eq!(registers(&leaves, 0x1F, 2), [4, 12, 0x302, 28]);
    assert_eq!(registers(&leaves, 0x1F, 3), [0, 0, 0x003, 28]);
    // 8 core ids a package; L1 shared by 2 ids, L2 by a cluster's 8, L3 by a die's 16.
    let (cores, sharing) = (7 << 26, |ids: u32| (ids - 1) << 14);
    assert_eq!(registers(&leaves, 4, 0), [cores | sharing(2) | 0x121, 0x01C0_003F, 63, 0]);
    assert_eq!(registers(&leaves, 4, 1), [cores | sharing(2) | 0x122, 0x01C0_003F, 63, 0]);
    assert_eq!(registers(&leaves, 4, 2), [cores | sharing(8) | 0x143, 0x03C0_003F, 1023, 0]);
    assert_eq!(registers(&leaves, 4, 3), [cores | sharing(16) | 0x163, 0x03C0_003F, 16383, 0]);
    assert_eq!(registers(&leaves, 4, 4), [0; 4]);
}

#[test]
fn intel_dies_are_a_level_of_their_own() {
    let leaves = specialise(&intel_host(), &machine(12, 1, [1, 3, 1, 4, 1]), VcpuIndex(11));
    assert_eq!(registers(&leaves, 0x1F, 0), [0, 1, 0x100, 11]);
    assert_eq!(registers(&leaves, 0x1F, 1), [2, 4, 0x201, 11]);
    assert_eq!(registers(&leaves, 0x1F, 2), [4, 12, 0x502, 11]);
    assert_eq!(registers(&leaves, 0x1F, 3)[2], 3);
}

#[test]
fn a_plain_machine_leaves_an_old_hosts_highest_leaf_alone() {
    let leaves = specialise(&intel_host(), &machine(32, 4, [0; 5]), VcpuIndex(31));
    assert_eq!(registers(&leaves, 0, 0)[0], 0x16);
    assert!(find(&leaves, 0x1F, 0).is_none());
    assert_eq!(registers(&leaves, 0xB, 1), [3, 8, 0x201, 31]);
    assert_eq!(registers(&leaves, 1, 0)[1], 0x1F08_0800);
}

/// Package 1, die 1, core 2 of 2 packages of 2 dies of 3 cores of 2 threads: id 1|1|10|0 = 28, die number 3.
#[test]
fn amd_leaves_of_two_dies() {
    let machine = machine(24, 2, [2, 2, 1, 3, 2]);
    let leaves = specialise(&amd_host(), &machine, VcpuIndex(22));
    assert_eq!(registers(&leaves, 1, 0), [0x00A2_0F10, 0x1C0C_0800, 0xFEF8_320B, 0x178B_FBFF]);
    assert_eq!(registers(&leaves, 0xB, 0), [1, 2, 0x100, 28]);
    assert_eq!(registers(&leaves, 0xB, 1), [4, 12, 0x201, 28]);
    assert_eq!(registers(&leaves, 0x8000_0000, 0)[0], 0x8000_0025, "no leaf 0x80000026");
    assert_eq!(registers(&leaves, 0x8000_0001, 0)[2], 0x0040_0003);
    assert_eq!(registers(&leaves, 0x8000_0008, 0), [0x3030, 0, 0x400B, 0]);
    assert_eq!(registers(&leaves, 0x8000_001D, 0)[0], 0x4121);
    assert_eq!(registers(&leaves, 0x8000_001D, 3)[0], (7 << 14) | 0x163);
    assert_eq!(registers(&leaves, 0x8000_001D, 4), [0; 4]);
    assert_eq!(registers(&leaves, 0x8000_001E, 0), [28, 0x106, 0x103, 0]);
    assert!(find(&leaves, 0x8000_0026, 0).is_none() && find(&leaves, 4, 0).is_none());
}

/// APM vol. 3, E.4.17: NodesPerProcessor has encodings for 1, 2, 4 and 8.
#[test]
fn amd_dies_have_a_count_of_nodes_that_is_not_reserved() {
    let counts = (1..=9).map(|dies| {
        let leaves = specialise(&amd_host(), &machine(dies, 1, [1, dies, 1, 1, 1]), VcpuIndex(0));
        registers(&leaves, 0x8000_001E, 0)[2] >> 8
    });
    assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 3, 3, 7, 7, 7, 7, 7]);
}

#[test]
fn tsc_deadline_is_offered_when_the_host_has_it_and_only_then() {
    let bit = |mut host: Vec<CpuidEntry>, offered| {
        offer_tsc_deadline(&mut host, offered);
        let leaves = specialise(&host, &machine(2, 1, [0; 5]), VcpuIndex(1));
        registers(&leaves, 1, 0)[2] >> 24 & 1
    };
    for host in [intel_host(), amd_host()] {
        assert_eq!((bit(host.clone(), true), bit(host, false)), (1, 0));
    }
}

#[test]
fn ids_wider_than_a_byte_are_whole_where_there_is_room() {
    for (host, x2apic) in [(intel_host(), 0xB), (amd_host(), 0xB)] {
        let leaves = specialise(&host, &machine(300, 1, [0; 5]), VcpuIndex(299));
        assert_eq!(registers(&leaves, x2apic, 0)[3], 299);
        assert_eq!(registers(&leaves, 1, 0)[1] >> 24, 299 & 0xFF);
        assert_eq!((registers(&leaves, 1, 0)[1] >> 16) & 0xFF, 255, "the count stops at what fits");
    }
    let leaves = specialise(&amd_host(), &machine(300, 1, [0; 5]), VcpuIndex(299));
    assert_eq!(registers(&leaves, 0x8000_001E, 0)[0], 299);
    assert_eq!(registers(&leaves, 0x8000_0008, 0)[2], 0x90FF);
}

#[test]
fn one_cpu_is_no_multiprocessor() {
    for host in [intel_host(), amd_host()] {
        let leaves = specialise(&host, &machine(1, 1, [0; 5]), VcpuIndex(0));
        assert_eq!(registers(&leaves, 1, 0)[3] & (1 << 28), 0, "HTT");
        assert_eq!(registers(&leaves, 1, 0)[1], 0x0001_0800);
    }
}

#[test]
fn what_is_no_topology_passes_through() {
    for host in [intel_host(), amd_host()] {
        let leaves = specialise(&host, &machine(6, 1, [0; 5]), VcpuIndex(5));
        let topology =
            [0, 1, 4, 0xB, 0x1F, 0x8000_0000, 0x8000_0001, 0x8000_0008, 0x8000_001D, 0x8000_001E, 0x8000_0026];
        for entry in host.iter().filter(|entry| !topology.contains(&entry.function)) {
            assert!(leaves.contains(entry), "{entry:x?}");
        }
    }
}

#[test]
fn leaf_1f_is_never_the_hosts() {
    let machine = machine(8, 1, [0; 5]);
    let leaves = specialise(&intel_1f_host(), &machine, VcpuIndex(7));
    assert_eq!(registers(&leaves, 0x1F, 1), [3, 8, 0x201, 7]);
    let l3 = CacheSpec { size_bytes: 480 << 20, ..default_caches()[3] };
    assert_eq!(host_caches(&intel_1f_host())[3], l3, "sets need not be a power of two");
}

#[test]
fn hygon_is_read_as_amd() {
    let hygon = entry(0, [0x10, 0x6F67_7948, 0x656E_6975, 0x6E65_476E]);
    assert_eq!(Vendor::of(&[hygon]), Vendor::Amd);
    assert_eq!(Vendor::of(&intel_host()), Vendor::Intel);
    assert_eq!(Vendor::of(&[]), Vendor::Intel);
}

#[test]
fn caches_come_from_the_host_and_their_sharing_does_not() {
    let l3 = |size_bytes, ways| CacheSpec {
        level: 3,
        kind: CacheKind::Unified,
        size_bytes,
        ways,
        line_bytes: 64,
        inclusive: false,
    };
    let intel = host_caches(&intel_host());
    assert_eq!(intel.len(), 4);
    assert_eq!(intel[3], l3(22 << 20, 11));
    let amd = host_caches(&amd_host());
    assert_eq!((amd[2].inclusive, amd[3]), (true, l3(32 << 20, 16)));
    let machine = machine(4, 1, [0; 5]).with_caches(intel).unwrap();
    let leaves = specialise(&intel_host(), &machine, VcpuIndex(0));
    assert_eq!(registers(&leaves, 4, 3), [(3 << 26) | (3 << 14) | 0x163, 0x0280_003F, 0x7FFF, 0]);
    assert_eq!(host_caches(&[]), []);
}

#[test]
fn amd_without_an_l3_in_the_legacy_leaf_gets_one() {
    let mut host = amd_host();
    host.retain(|entry| entry.function != 0x8000_0006);
    let leaves = specialise(&host, &machine(4, 1, [0; 5]), VcpuIndex(0));
    assert_eq!(registers(&leaves, 0x8000_0006, 0)[3], (32 << 18) | (9 << 12) | (1 << 8) | 64);
    let no_l3 = machine(4, 1, [0; 5]).with_caches(default_caches()[..3].to_vec()).unwrap();
    assert_eq!(registers(&specialise(&amd_host(), &no_l3, VcpuIndex(0)), 0x8000_0006, 0)[3], 0);
}

#[test]
fn the_decoder_refuses_what_linux_would_complain_about() {
    let machine = machine(4, 1, [0; 5]);
    let good = all(&intel_host(), &machine);
    let with = |change: &dyn Fn(&mut Vec<CpuidEntry>)| {
        let mut cpus = good.clone();
        change(&mut cpus[2]);
        decode(&cpus).unwrap_err()
    };
    let cpu = VcpuIndex(2);
    let without_b = with(&|leaves| leaves.retain(|leaf| leaf.function != 0xB));
    assert_eq!(without_b, DecodeError::MissingLeaf { cpu, leaf: 0xB });
    let wrong_id = with(&|leaves| leaf(leaves, 1).ebx = 0);
    let (x2apic, other) = (crate::id::ApicId(2), crate::id::ApicId(0));
    assert_eq!(wrong_id, DecodeError::IdsDisagree { cpu, x2apic, leaf: 1, other });
    assert_eq!(with(&|leaves| leaf(leaves, 0xB).eax = 1), DecodeError::LevelsDiffer { cpu });
    assert_eq!(with(&|leaves| leaf(leaves, 4).eax |= 1 << 14), DecodeError::CachesDiffer { cpu });
    let twice = with(&|leaves| *leaves = good[1].clone());
    assert_eq!(twice, DecodeError::SameId { first: VcpuIndex(1), second: cpu, id: crate::id::ApicId(1) });
}

proptest! {
    #[test]
    fn decode_of_encode_is_the_machine_on_intel(
        machine in generate::machine(), l3 in any::<bool>(), has_1f in any::<bool>(),
    ) {
        let host = if has_1f { intel_1f_host() } else { intel_host() };
        let caches = if l3 { host_caches(&host) } else { default_caches()[..3].to_vec() };
        let machine = machine.with_caches(caches).unwrap();
        let seen = decode(&all(&host, &machine)).unwrap();
        prop_assert_eq!(seen, DecodedTopology::expected(&machine, Vendor::Intel));
    }

    #[test]
    fn decode_of_encode_is_the_machine_on_amd(machine in generate::machine(), l3 in any::<bool>()) {
        let caches = if l3 { host_caches(&amd_host()) } else { default_caches()[..3].to_vec() };
        let machine = machine.with_caches(caches).unwrap();
        let seen = decode(&all(&amd_host(), &machine)).unwrap();
        prop_assert_eq!(seen, DecodedTopology::expected(&machine, Vendor::Amd));
    }

    #[test]
    fn no_list_panics(
        entries in proptest::collection::vec(
            (prop_oneof![Just(0), Just(1), Just(4), Just(0xB), Just(0x1F), Just(0x8000_001D), Just(0x8000_001E)],
             0u32..4, any::<[u32; 4]>()), 0..30),
        amd in any::<bool>(),
    ) {
        let mut list = vec![if amd { amd_host()[0] } else { intel_host()[0] }, entry(1, [0; 4])];
        list.extend(entries.into_iter().map(|(function, index, registers)| subleaf(function, index, registers)));
        let _ = decode(&[list.clone()]);
        let machine = machine(3, 1, [0; 5]).with_caches(host_caches(&list)).unwrap();
        let seen = decode(&all(&list, &machine)).unwrap();
        prop_assert_eq!(seen.cpus.len(), 3);
    }
}
