// SPDX-License-Identifier: Apache-2.0
//! The very bytes of a small machine's tables, and what cannot be placed.

use super::fixture::{even, lopsided, machine, map, platform};
use super::*;
use crate::id::ApicId;

/// The bytes of a section of golden.txt.
fn golden(section: &str) -> Vec<u8> {
    let heading = format!("[{section}]");
    let lines = include_str!("golden.txt").lines().skip_while(|line| *line != heading).skip(1);
    let fields = lines.take_while(|line| !line.is_empty()).map(|line| line.split('#').next().unwrap());
    fields.flat_map(repeated).collect()
}

fn repeated(field: &str) -> Vec<u8> {
    let (bytes, times) = field.split_once('x').unwrap_or((field, "1"));
    let bytes: Vec<u8> = bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.repeat(times.trim().parse().unwrap())
}

#[test]
fn every_table_of_a_small_machine_has_its_bytes() {
    let topology = lopsided();
    let tables = build(&topology, &map(&topology), &platform()).unwrap();
    assert_eq!(tables.rsdp, golden("RSDP"));
    for (name, signature) in [("FADT", b"FACP"), ("MADT", b"APIC")] {
        assert_eq!(tables.table(*signature).unwrap().bytes, golden(name), "{name}");
    }
    for signature in [b"DSDT", b"SRAT", b"SLIT", b"PPTT", b"HMAT", b"XSDT"] {
        let name = String::from_utf8_lossy(signature);
        assert_eq!(tables.table(*signature).unwrap().bytes, golden(&name), "{name}");
    }
}

#[test]
fn madt_entries_change_form_between_ids_254_and_255() {
    let table = madt::table(&[0, 254, 255, 300].map(ApicId), &platform());
    let entries = [
        vec![0, 8, 0, 0, 1, 0, 0, 0],
        vec![0, 8, 1, 254, 1, 0, 0, 0],
        vec![9, 16, 0, 0, 255, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],
        vec![9, 16, 0, 0, 0x2C, 1, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0],
        vec![1, 12, 0, 0, 0, 0, 0xC0, 0xFE, 0, 0, 0, 0],
        vec![4, 6, 0xFF, 0, 0, 1],
        vec![10, 12, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0],
    ];
    assert_eq!(table[44..], entries.concat());
}

#[test]
fn srat_entries_change_form_between_ids_254_and_255() {
    let node = crate::id::NodeId(0x0102_0304);
    let table = srat::table(&[(ApicId(254), node), (ApicId(255), node)], &[]);
    let entries = [
        vec![0, 16, 4, 254, 1, 0, 0, 0, 0, 3, 2, 1, 0, 0, 0, 0],
        vec![2, 24, 0, 0, 4, 3, 2, 1, 255, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(table[48..], entries.concat());
}

#[test]
fn the_region_is_full_at_exactly_the_required_bytes() {
    let topology = machine(&even(32, 4));
    let map = map(&topology);
    let needed_bytes = required_bytes(&topology, &map, &platform());
    let with = |tables_len_bytes| build(&topology, &map, &Platform { tables_len_bytes, ..platform() });
    assert!(with(needed_bytes).is_ok());
    let (tables_gpa, available_bytes) = (platform().tables_gpa, needed_bytes - 1);
    assert_eq!(with(available_bytes), Err(AcpiError::DoNotFit { tables_gpa, needed_bytes, available_bytes }));
}

#[test]
fn impossible_places_are_refused() {
    let topology = lopsided();
    let with = |platform| build(&topology, &map(&topology), &platform).unwrap_err();
    let base = platform();
    assert!(matches!(with(Platform { rsdp_gpa: 0xE_0008, ..base }), AcpiError::Unaligned { gpa: 0xE_0008, .. }));
    assert!(matches!(with(Platform { tables_gpa: 0xE_0031, ..base }), AcpiError::Unaligned { gpa: 0xE_0031, .. }));
    let high = Platform { tables_gpa: 0xFFFF_FFFF_FFFF_FFF0, ..base };
    assert!(matches!(with(high), AcpiError::PastEnd { .. }));
    assert!(matches!(with(Platform { tables_gpa: 0xE_0020, ..base }), AcpiError::RsdpInTables { .. }));
}
