// SPDX-License-Identifier: Apache-2.0
//! What the tables say is what they were made of, and no bytes make a parser panic.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::acpi::fixture::{even, lopsided, machine, map, platform};
use crate::acpi::sdt::sum;
use crate::acpi::{build, required_bytes, uid};
use crate::generate;
use crate::guest::{GuestTopology, TopologyRequest};
use crate::id::{ApicId, NodeId};

fn built(topology: &GuestTopology) -> AcpiTables {
    build(topology, &map(topology), &platform()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_table_sums_to_zero_and_stands_apart_from_the_others(topology in generate::machine()) {
        let tables = built(&topology);
        prop_assert_eq!(sum(&tables.rsdp), 0);
        let mut end = tables.rsdp_gpa;
        for (gpa, bytes) in tables.pieces() {
            prop_assert!(gpa >= end && gpa % 16 == 0);
            prop_assert_eq!(sum(bytes), 0);
            end = gpa + bytes.len() as u64;
        }
        let platform = platform();
        prop_assert_eq!(end - platform.tables_gpa, required_bytes(&topology, &map(&topology), &platform));
    }

    #[test]
    fn decoding_what_was_built_gives_the_cpus_and_their_nodes(topology in generate::machine()) {
        let decoded = read_built(&built(&topology)).unwrap();
        let madt: Vec<_> = decoded.madt.cpus.iter().map(|cpu| (cpu.uid, cpu.apic_id, cpu.enabled)).collect();
        let expected: Vec<_> = topology.vcpus().map(|cpu| (uid(cpu), topology.apic_id(cpu), true)).collect();
        prop_assert_eq!(madt, expected);
        let srat: Vec<_> = decoded.srat.unwrap().cpus.iter().map(|cpu| (cpu.apic_id, cpu.node)).collect();
        let expected: Vec<_> = topology.vcpus().map(|cpu| (topology.apic_id(cpu), topology.node_of(cpu))).collect();
        prop_assert_eq!(srat, expected);
    }

    #[test]
    fn srat_covers_every_byte_of_memory_exactly_once(topology in generate::machine()) {
        let mut memory = read_built(&built(&topology)).unwrap().srat.unwrap().memory;
        memory.sort_by_key(|range| range.start);
        let disjoint = memory.windows(2).all(|pair| pair[0].start + pair[0].len_bytes <= pair[1].start);
        prop_assert!(disjoint);
        let mut by_node: BTreeMap<NodeId, u64> = BTreeMap::new();
        for range in &memory {
            prop_assert!(map(&topology).holds(&(range.start..range.start + range.len_bytes)));
            *by_node.entry(range.node).or_default() += range.len_bytes;
        }
        let expected: BTreeMap<_, _> = topology.nodes().iter().map(|node| (node.id, node.memory_bytes)).collect();
        prop_assert_eq!(by_node, expected);
    }

    #[test]
    fn slit_and_hmat_hold_every_distance_in_its_direction(topology in generate::machine()) {
        let decoded = read_built(&built(&topology)).unwrap();
        let (slit, hmat) = (decoded.slit.unwrap(), decoded.hmat.unwrap());
        prop_assert_eq!(slit.localities() as usize, topology.nodes().len());
        let latency = &hmat.localities[0];
        prop_assert_eq!(latency.quantity, Quantity::LatencyNs);
        for (row, from) in topology.nodes().iter().filter(|node| !node.cpus.is_empty()).enumerate() {
            for (column, to) in topology.nodes().iter().enumerate() {
                let distance = topology.distance(from.id, to.id);
                prop_assert_eq!(slit.distance(from.id, to.id), Some(distance));
                let value = latency.values[row * latency.targets.len() + column];
                prop_assert_eq!(value, Some(10 * u64::from(distance)));
            }
        }
    }

    #[test]
    fn pptt_puts_cpus_under_one_package_exactly_when_they_share_it(topology in generate::machine()) {
        let pptt = read_built(&built(&topology)).unwrap().pptt.unwrap();
        let mut packages: BTreeMap<u32, u32> = BTreeMap::new();
        for cpu in topology.vcpus() {
            let path = pptt.path(uid(cpu));
            let package = path.iter().copied().find(|offset| pptt.nodes[offset].package).unwrap();
            let known = *packages.entry(topology.position(cpu).package).or_insert(package);
            prop_assert_eq!(known, package);
            let caches: usize = path.iter().map(|offset| pptt.caches_of(&pptt.nodes[offset]).len()).sum();
            prop_assert_eq!(caches, topology.caches().len());
        }
        let mut distinct: Vec<u32> = packages.values().copied().collect();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), packages.len());
    }

    #[test]
    fn mutated_bytes_never_panic_a_parser(
        topology in generate::machine(),
        faults in vec((any::<Index>(), any::<Index>(), any::<u8>()), 1..6),
        mend in any::<bool>(),
    ) {
        let mut tables = built(&topology);
        for (table, place, value) in faults {
            let count = tables.tables.len();
            let bytes = &mut tables.tables[table.index(count)].bytes;
            let place = place.index(bytes.len());
            bytes[place] = value;
            if mend {
                bytes[9] = bytes[9].wrapping_sub(sum(bytes));
            }
        }
        // With the checksum mended the walk goes on into the table's own fields.
        if let Ok(decoded) = read_built(&tables) {
            for cpu in &decoded.madt.cpus {
                decoded.pptt.as_ref().map(|pptt| pptt.path(cpu.uid));
            }
        }
    }

    #[test]
    fn arbitrary_memory_never_panics_the_walk(bytes in vec(any::<u8>(), 0..4096), gpa in any::<u64>()) {
        let memory = |at: u64, buffer: &mut [u8]| {
            let from = usize::try_from(at % 4096).unwrap();
            let found = bytes.get(from..).and_then(|rest| rest.get(..buffer.len()));
            found.map(|found| buffer.copy_from_slice(found)).is_some()
        };
        prop_assert!(read(&memory, gpa).is_err());
    }
}

/// The tables of the lopsided machine with one thing changed in one of them, its checksum mended.
fn with(signature: &[u8; 4], change: impl FnOnce(&mut Vec<u8>)) -> Result<Decoded, DecodeError> {
    let mut tables = built(&lopsided());
    let table = tables.tables.iter_mut().find(|table| table.signature == *signature).unwrap();
    change(&mut table.bytes);
    table.bytes[9] = table.bytes[9].wrapping_sub(sum(&table.bytes));
    read_built(&tables)
}

fn put_u32(offset: usize, value: u32) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes())
}

#[test]
fn every_fault_of_a_table_has_its_error() {
    use DecodeError as E;
    let table = |name: &str| name.to_owned();
    assert!(matches!(with(b"APIC", |b| b[0] = b'B'), Err(E::Missing { table }) if table == "APIC"));
    assert!(matches!(with(b"APIC", put_u32(4, 12)), Err(E::TooShort { length: 12, needed: 36, .. })));
    assert!(matches!(with(b"APIC", put_u32(4, u32::MAX)), Err(E::TooLong { length: u32::MAX, .. })));
    assert!(matches!(with(b"APIC", put_u32(4, 0x8_0000)), Err(E::Unreadable { len_bytes: 0x8_0000, .. })));
    // The NMI entry of six bytes, called an x2APIC entry.
    assert_eq!(
        with(b"APIC", |b| b[72] = 9),
        Err(E::EntryTooShort { table: table("APIC"), offset: 72, kind: 9, length: 6, needed: 16 })
    );
    assert!(matches!(with(b"APIC", |b| b[45] = 0), Err(E::EntryTooShort { length: 0, needed: 2, .. })));
    assert!(matches!(with(b"APIC", |b| b[45] = 200), Err(E::EntryOverruns { offset: 44, .. })));
    assert_eq!(with(b"SLIT", |b| b[36] = 3), Err(E::SlitLocalities { localities: 3, length: 48 }));
    assert!(matches!(with(b"HMAT", |b| b[8] = 1), Err(E::Revision { revision: 1, .. })));
    assert!(matches!(with(b"XSDT", put_u32(4, 36 + 44)), Err(E::XsdtLength { length: 80 })));
    assert!(matches!(with(b"FACP", put_u32(140, 0)), Err(E::Unreadable { gpa: 0, .. })));
    assert!(matches!(with(b"DSDT", |b| b[0] = b'S'), Err(E::Signature { table, .. }) if table == "DSDT"));
}

#[test]
fn a_changed_byte_is_found_by_the_checksum() {
    let mut tables = built(&lopsided());
    let srat = tables.tables.iter_mut().find(|table| &table.signature == b"SRAT").unwrap();
    srat.bytes[50] += 3;
    assert_eq!(read_built(&tables), Err(DecodeError::Checksum { table: "SRAT".to_owned(), sum: 3 }));
}

#[test]
fn every_fault_of_a_reference_has_its_error() {
    use DecodeError as E;
    let pptt = built(&lopsided()).table(*b"PPTT").unwrap().bytes.clone();
    let decoded = read_built(&built(&lopsided())).unwrap().pptt.unwrap();
    let (leaf, package) = (decoded.path(0)[0], decoded.path(0)[1]);
    let head = decoded.nodes[&leaf].caches[0];
    assert_eq!(pptt[leaf as usize], 0);
    let at = |offset: u32, field: u32| (offset + field) as usize;
    assert_eq!(with(b"PPTT", put_u32(at(leaf, 8), 3)), Err(E::PpttParent { offset: leaf, parent: 3 }));
    assert_eq!(with(b"PPTT", put_u32(at(package, 8), leaf)), Err(E::PpttLoop { offset: package }));
    assert_eq!(with(b"PPTT", put_u32(at(leaf, 20), leaf)), Err(E::PpttCache { offset: leaf, cache: leaf }));
    assert_eq!(with(b"PPTT", put_u32(at(head, 8), head)), Err(E::PpttCacheLoop { offset: head }));
    // The latency matrix follows the two memory domains.
    let matrix = 40 + 2 * 40;
    assert_eq!(
        with(b"HMAT", put_u32(matrix + 12, u32::MAX)),
        Err(E::HmatMatrix { offset: 120, initiators: u32::MAX, targets: 2 })
    );
}

#[test]
fn every_fault_of_the_rsdp_has_its_error() {
    use DecodeError as E;
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut tables = built(&lopsided());
        change(&mut tables.rsdp);
        read_built(&tables).unwrap_err()
    };
    assert_eq!(with(&|rsdp| rsdp[0] = b'X'), E::NoRsdp { gpa: 0xE_0000 });
    assert_eq!(with(&|rsdp| rsdp[10] += 1), E::RsdpChecksum { sum: 1 });
    assert_eq!(with(&|rsdp| rsdp[33] += 1), E::RsdpExtendedChecksum { sum: 1 });
    let old = |rsdp: &mut [u8]| {
        rsdp[15] = 0;
        rsdp[8] = rsdp[8].wrapping_add(2);
    };
    assert_eq!(with(&old), E::RsdpRevision { revision: 0 });
    assert_eq!(with(&|rsdp| rsdp[20] = 20), E::RsdpLength { length: 20 });
}

#[test]
fn duplicate_and_surplus_tables_have_their_errors() {
    let tables = built(&lopsided());
    let madt = tables.table(*b"APIC").unwrap().gpa;
    let grown = |count: usize| {
        let mut tables = tables.clone();
        let xsdt = tables.tables.last_mut().unwrap();
        xsdt.bytes.truncate(36);
        (0..count).for_each(|_| xsdt.bytes.extend_from_slice(&madt.to_le_bytes()));
        let length = u32::try_from(xsdt.bytes.len()).unwrap();
        xsdt.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        xsdt.bytes[9] = xsdt.bytes[9].wrapping_sub(sum(&xsdt.bytes));
        read_built(&tables).unwrap_err()
    };
    assert_eq!(grown(2), DecodeError::Duplicate { table: "APIC".to_owned() });
    assert_eq!(grown(MAX_TABLES + 1), DecodeError::TooManyTables { count: MAX_TABLES + 1 });
}

#[test]
fn ids_above_254_take_the_x2apic_form_in_both_tables() {
    let decoded = read_built(&built(&machine(&even(300, 2)))).unwrap();
    let form = |id: ApicId| if id.0 < 255 { ApicForm::XApic } else { ApicForm::X2Apic };
    assert!(decoded.madt.cpus.iter().all(|cpu| cpu.form == form(cpu.apic_id)));
    assert!(decoded.srat.unwrap().cpus.iter().all(|cpu| cpu.form == form(cpu.apic_id)));
    let nmis: Vec<_> = decoded.madt.nmis.iter().map(|nmi| (nmi.target, nmi.lint)).collect();
    assert_eq!(nmis, [(NmiTarget::All(ApicForm::XApic), 1), (NmiTarget::All(ApicForm::X2Apic), 1)]);
}

#[test]
fn the_machine_is_hardware_reduced_with_its_registers_where_the_platform_has_them() {
    let decoded = read_built(&built(&lopsided())).unwrap();
    let fadt = decoded.fadt;
    assert!(fadt.hardware_reduced);
    assert_eq!((fadt.sleep_control.byte_port(), fadt.sleep_status.byte_port()), (Some(0x600), Some(0x601)));
    assert_eq!(fadt.reset.map(|(register, value)| (register.byte_port(), value)), Some((Some(0x602), 1)));
    // VGA and CMOS clock absent; no 8042, no legacy devices.
    assert_eq!(fadt.boot_architecture, 0b10_0100);
    assert!(!decoded.madt.has_8259);
    assert_eq!(decoded.madt.source_overrides, 0);
}

#[test]
fn memory_of_a_node_without_cpus_is_attached_to_none() {
    let mut request = even(2, 1);
    request.nodes.push(crate::guest::NodeRequest { memory_bytes: 1 << 30, ..Default::default() });
    let hmat = read_built(&built(&machine(&TopologyRequest { ..request }))).unwrap().hmat.unwrap();
    let domains: Vec<_> = hmat.domains.iter().map(|domain| (domain.memory, domain.initiator)).collect();
    assert_eq!(domains, [(NodeId(0), Some(NodeId(0))), (NodeId(1), None)]);
    assert_eq!(
        (&hmat.localities[0].initiators[..], &hmat.localities[0].targets[..]),
        ([NodeId(0)].as_slice(), [NodeId(0), NodeId(1)].as_slice())
    );
}
