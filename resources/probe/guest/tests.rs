// SPDX-License-Identifier: Apache-2.0
//! The parts of the guest that are functions from values to values, tested on the host.

#[path = "acpi.rs"]
mod acpi;
#[path = "cpu_seen.rs"]
mod cpu_seen;
#[path = "histogram.rs"]
mod histogram;

use std::sync::Arc;

use proptest::prelude::*;

use acpi::{Affinity, PhysicalMemory, Root};
use cpu_seen::CpuSeen;

/// Memory that is one stretch of bytes at an address.
struct At(u64, &'static [u8]);

impl At {
    /// What a test puts into memory stays there.
    fn new(address: u64, bytes: Vec<u8>) -> Self {
        Self(address, bytes.leak())
    }
}

impl PhysicalMemory for At {
    fn bytes(&self, address: u64, len: usize) -> Option<&'static [u8]> {
        let start = usize::try_from(address.checked_sub(self.0)?).ok()?;
        self.1.get(start..start.checked_add(len)?)
    }
}

fn with_checksum(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] = 0;
    bytes[at] = bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte));
    bytes
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 36];
    bytes[..4].copy_from_slice(signature);
    bytes[4..8].copy_from_slice(&u32::try_from(36 + body.len()).unwrap().to_le_bytes());
    bytes.extend(body);
    with_checksum(bytes, 9)
}

const BASE: u64 = 0xe0000;

/// RSDP, XSDT and the tables, one behind the other.
fn machine(tables: &[Vec<u8>]) -> Vec<u8> {
    let xsdt_at = BASE + 64;
    let mut next = xsdt_at + 36 + 8 * tables.len() as u64;
    let mut addresses = Vec::new();
    for table in tables {
        addresses.extend(next.to_le_bytes());
        next += table.len() as u64;
    }
    let mut rsdp = vec![0; 36];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[15] = 2;
    rsdp[24..32].copy_from_slice(&xsdt_at.to_le_bytes());
    let first = with_checksum(rsdp[..20].to_vec(), 8);
    rsdp[..20].copy_from_slice(&first);
    let mut bytes = with_checksum(rsdp, 32);
    bytes.resize(64, 0);
    bytes.extend(table(b"XSDT", &addresses));
    bytes.extend(tables.concat());
    bytes
}

fn madt() -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend([0, 8, 0, 3, 1, 0, 0, 0]);
    body.extend([0, 8, 1, 4, 0, 0, 0, 0]);
    body.extend([9, 16, 0, 0, 0x2c, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    body.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    table(b"APIC", &body)
}

#[test]
fn tables_are_found_with_and_without_the_address_of_the_root() {
    let memory = At::new(BASE, machine(&[madt()]));
    for rsdp in [Some(BASE), None] {
        let found = Root::find(&memory, rsdp).unwrap().table(&memory, b"APIC").unwrap();
        assert_eq!(acpi::cpus(found).collect::<Vec<_>>(), [3, 300], "the disabled CPU is none");
        assert_eq!(acpi::ioapic(found), Some(0xfec0_0000));
    }
    let root = Root::find(&memory, None).unwrap();
    assert!(root.table(&memory, b"SRAT").is_none());
}

#[test]
fn a_root_before_acpi_2_has_short_addresses() {
    let rsdt_at = u32::try_from(BASE).unwrap() + 32;
    let mut rsdp = vec![0; 20];
    rsdp[..8].copy_from_slice(b"RSD PTR ");
    rsdp[16..20].copy_from_slice(&rsdt_at.to_le_bytes());
    let mut bytes = with_checksum(rsdp, 8);
    bytes.resize(32, 0);
    bytes.extend(table(b"RSDT", &(rsdt_at + 40).to_le_bytes()));
    bytes.extend(madt());
    let memory = At::new(BASE, bytes);
    assert!(Root::find(&memory, None).unwrap().table(&memory, b"APIC").is_some());
}

#[test]
fn a_damaged_table_is_no_table() {
    let mut bytes = machine(&[madt()]);
    *bytes.last_mut().unwrap() ^= 1;
    let memory = At::new(BASE, bytes);
    assert!(Root::find(&memory, Some(BASE)).unwrap().table(&memory, b"APIC").is_none());
    assert!(Root::find(&memory, Some(BASE + 16)).is_err());
}

#[test]
fn affinities_of_all_three_kinds_are_read() {
    let mut body = vec![0; 12];
    body.extend([0, 16, 1, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut memory_entry = vec![1, 40, 2, 0, 0, 0, 0, 0];
    memory_entry.extend([0x1000_u64, 0x2000].iter().flat_map(|v| v.to_le_bytes()));
    memory_entry.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend(memory_entry);
    body.extend([2, 24, 0, 0, 3, 0, 0, 0, 0x2c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let srat: &'static [u8] = table(b"SRAT", &body).leak();
    let expected = [
        Affinity::Cpu { apic_id: 7, node: 1 },
        Affinity::Memory { bytes: 0x2000, node: 2 },
        Affinity::Cpu { apic_id: 300, node: 3 },
    ];
    assert_eq!(acpi::affinities(srat).collect::<Vec<_>>(), expected);
}

/// A FADT of a hardware-reduced machine whose DSDT lies at `dsdt`.
fn fadt(dsdt: u64, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 240];
    let mut put = |offset: usize, bytes: &[u8]| body[offset - 36..offset - 36 + bytes.len()].copy_from_slice(bytes);
    put(64, &0x604_u32.to_le_bytes());
    put(112, &flags.to_le_bytes());
    put(116, &[1, 8, 0, 1, 0x02, 0x06]);
    put(128, &[1]);
    put(140, &dsdt.to_le_bytes());
    put(244, &[1, 8, 0, 1, 0x00, 0x06]);
    table(b"FACP", &body)
}

#[test]
fn power_is_what_fadt_and_dsdt_say() {
    let s5 = [0x08, b'_', b'S', b'5', b'_', 0x12, 0x06, 0x04, 0x0a, 5, 0, 0, 0];
    let memory = At::new(BASE, table(b"DSDT", &s5));
    let reduced: &'static [u8] = fadt(BASE, 1 << 20 | 1 << 10).leak();
    let power = acpi::power(&memory, reduced);
    assert_eq!((power.sleep_control, power.reset), (Some((0x600, 0x34)), Some((0x602, 1))));
    let full: &'static [u8] = fadt(BASE, 0).leak();
    let power = acpi::power(&memory, full);
    assert_eq!((power.sleep_control, power.pm1a_control, power.reset), (None, Some((0x604, 0x3400)), None));
}

type Registers = [u32; 4];

/// A CPU of an Intel host: levels by type and shift, caches by type, level and sharing ids.
fn intel(apic_id: u32, levels: Vec<(u32, u32)>, caches: Vec<(u32, u32, u32)>) -> impl Fn(u32, u32) -> Registers {
    let (levels, caches) = (Arc::new(levels), Arc::new(caches));
    move |leaf, subleaf| match leaf {
        0 => [0x1f, u32::from_le_bytes(*b"Genu"), 0, 0],
        4 => cache_leaf(&caches, subleaf),
        0x1f => match levels.get(subleaf as usize) {
            Some((kind, shift)) => [*shift, 1, kind << 8 | subleaf, apic_id],
            None => [0, 0, subleaf, apic_id],
        },
        _ => [0; 4],
    }
}

fn cache_leaf(caches: &[(u32, u32, u32)], subleaf: u32) -> Registers {
    let one = |(kind, level, ids): &(u32, u32, u32)| [kind | level << 5 | (ids - 1) << 14, 7 << 22 | 63, 63, 0];
    caches.get(subleaf as usize).map_or([0; 4], one)
}

fn position(seen: &CpuSeen) -> [u32; 5] {
    [seen.package, seen.die, seen.cluster, seen.core, seen.thread]
}

#[test]
fn all_levels_of_leaf_1f_are_told_apart() {
    let levels = vec![(1, 1), (2, 3), (3, 4), (5, 6)];
    let id = 5 << 6 | 2 << 4 | 1 << 3 | 3 << 1 | 1;
    let seen = cpu_seen::look(intel(id, levels, vec![(1, 1, 2), (2, 1, 2), (3, 2, 8), (3, 3, 64)]));
    assert_eq!(position(&seen), [5, 2, 1, 3, 1]);
    assert_eq!(seen.apic_id, id);
    assert_eq!(seen.caches.map(|cache| cache.unwrap().domain), [id >> 1, id >> 1, id >> 3, id >> 6]);
    assert_eq!(seen.caches[0].unwrap().bytes, 64 * 8 * 64);
}

#[test]
fn cores_that_share_a_level_2_cache_are_a_cluster() {
    let seen = cpu_seen::look(intel(0b1_0111, vec![(1, 1), (2, 4)], vec![(3, 2, 4)]));
    assert_eq!(position(&seen), [1, 0, 1, 1, 1]);
    let alone = cpu_seen::look(intel(0b1_0111, vec![(1, 1), (2, 4)], vec![(3, 2, 2)]));
    assert_eq!(position(&alone), [1, 0, 0, 3, 1]);
}

/// A CPU of an AMD host with 16 ids a package, two threads a core.
fn amd(id: u32, caches: &'static [(u32, u32, u32)]) -> impl Fn(u32, u32) -> Registers {
    move |leaf, subleaf| match (leaf, subleaf) {
        (0, _) => [0xb, u32::from_le_bytes(*b"Auth"), 0, 0],
        (0xb, 0) => [1, 1, 0x100, id],
        (0xb, 1) => [4, 1, 0x201, id],
        (0x8000_0000, _) => [0x8000_001e, 0, 0, 0],
        (0x8000_001d, s) => cache_leaf(caches, s),
        (0x8000_001e, _) => [id, 0, 1 << 8 | 3, 0],
        _ => [0; 4],
    }
}

#[test]
fn a_die_of_an_amd_host_has_a_level_3_cache_or_is_a_node() {
    let id = 1 << 4 | 0b1011;
    let halves = amd(id, &[(1, 1, 2), (3, 2, 2), (3, 3, 8)]);
    assert_eq!(position(&cpu_seen::look(halves)), [1, 1, 0, 1, 1]);
    let quarters = amd(id, &[(3, 3, 4)]);
    assert_eq!(position(&cpu_seen::look(quarters)), [1, 2, 0, 1, 1]);
    assert_eq!(position(&cpu_seen::look(amd(id, &[]))), [1, 1, 0, 1, 1]);
}

#[test]
fn a_cpu_without_extended_leaves_is_known_by_leaf_1() {
    let old = |leaf, _| match leaf {
        0 => [2, u32::from_le_bytes(*b"Genu"), 0, 0],
        1 => [0, 6 << 24 | 4 << 16, 0, 1 << 28],
        _ => [0; 4],
    };
    let seen = cpu_seen::look(old);
    assert_eq!((seen.apic_id, position(&seen)), (6, [1, 0, 0, 2, 0]));
}

#[test]
fn quantiles_are_within_an_eighth() {
    let histogram = histogram::Histogram::new();
    (1..=1000).for_each(|value| histogram.record(value));
    let all = std::iter::once(&histogram);
    for (per_mille, exact) in [(500, 500), (990, 990), (999, 999)] {
        let found = histogram::quantile(all.clone(), per_mille).unwrap();
        assert!(found <= exact && exact - found <= exact / 8, "{per_mille}: {found}");
    }
    assert_eq!(histogram::quantile(std::iter::empty(), 500), None);
}

proptest! {
    #[test]
    fn a_bucket_holds_its_floor_and_what_follows(value in 0_u64..1 << 48) {
        let bucket = histogram::bucket_of(value);
        let floor = histogram::floor_of(bucket);
        prop_assert!(floor <= value && value - floor <= value / 8);
        prop_assert_eq!(histogram::bucket_of(floor), bucket);
        prop_assert!(histogram::bucket_of(value + 1) >= bucket);
    }

    #[test]
    fn hostile_tables_never_panic(
        signature in prop::sample::select(vec![*b"APIC", *b"SRAT", *b"FACP", *b"DSDT", *b"SLIT"]),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = table(&signature, &body);
        let memory = At::new(BASE, machine(&[bytes, table(b"DSDT", &body)]));
        let root = Root::find(&memory, None).unwrap();
        let found = root.table(&memory, &signature).unwrap();
        prop_assert!(acpi::cpus(found).count() <= found.len() / 2);
        prop_assert!(acpi::affinities(found).count() <= found.len() / 2);
        let _ = (acpi::ioapic(found), acpi::power(&memory, found), acpi::distance(found, u32::MAX, u32::MAX));
    }

    #[test]
    fn any_cpuid_gives_a_position(values in any::<[[u32; 4]; 8]>()) {
        let seen = cpu_seen::look(|leaf, subleaf| values[(leaf ^ subleaf) as usize % values.len()]);
        prop_assert!(seen.caches.iter().flatten().all(|cache| cache.bytes > 0));
    }
}
