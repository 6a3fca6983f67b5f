// SPDX-License-Identifier: Apache-2.0
//! The deterministic cache parameters, which leaf 4 (Intel) and leaf 0x8000001D (AMD) state in one format.
//!
//! Sharing is stated as a number of APIC ids, so it is a power of two even where a hole follows: both vendors' rule is to
//! shift the APIC id right by the rounded-up logarithm, and Linux' AMD code takes the number itself as an id range
//! (`__cache_amd_cpumap_setup`). Invariant: what is written reads back as the same cache.

use crate::cache::{CacheKind, CacheSpec};
use crate::cpuid::register::{get, set, set_bit};
use crate::cpuid::{CpuidEntry, Vendor, find};
use crate::guest::GuestTopology;

/// Subleaves of leaf 4 or 0x8000001D, one a cache and one that ends the list.
pub(super) fn entries(function: u32, machine: &GuestTopology) -> Vec<CpuidEntry> {
    let mut entries: Vec<CpuidEntry> = machine
        .caches()
        .iter()
        .map(|cache| encode(cache, 1 << machine.sharing_bits(cache)))
        // A cache of type 0 ends the list.
        .chain([CpuidEntry::default()])
        .collect();
    for (index, entry) in (0..).zip(&mut entries) {
        *entry = CpuidEntry { function, index, indexed: true, ..*entry };
    }
    entries
}

fn encode(cache: &CacheSpec, sharing_ids: u32) -> CpuidEntry {
    let mut leaf = CpuidEntry::default();
    // EAX[4:0]: type, 1 data, 2 instruction, 3 unified.
    let kind = match cache.kind {
        CacheKind::Data => 1,
        CacheKind::Instruction => 2,
        CacheKind::Unified => 3,
    };
    set(&mut leaf.eax, 4, 0, kind);
    // EAX[7:5]: level, from 1.
    set(&mut leaf.eax, 7, 5, u32::from(cache.level));
    // EAX[8]: needs no initialisation by software.
    set_bit(&mut leaf.eax, 8, true);
    // EAX[9]: fully associative.
    set_bit(&mut leaf.eax, 9, cache.sets() == 1);
    // EAX[25:14]: addressable ids that share the cache, less one.
    set(&mut leaf.eax, 25, 14, sharing_ids - 1);
    // EBX[11:0]: line size in bytes, less one. EBX[21:12]: partitions, less one, always 0 here.
    set(&mut leaf.ebx, 11, 0, cache.line_bytes - 1);
    // EBX[31:22]: ways, less one.
    set(&mut leaf.ebx, 31, 22, cache.ways - 1);
    // ECX: sets, less one.
    leaf.ecx = u32::try_from(cache.sets() - 1).unwrap_or(u32::MAX);
    // EDX[1]: inclusive of the lower levels.
    set_bit(&mut leaf.edx, 1, cache.inclusive);
    leaf
}

/// The caches in a list of entries, each with the number of APIC ids that share it, in the order of the list.
pub(super) fn read(entries: &[CpuidEntry], vendor: Vendor) -> Vec<(CacheSpec, u32)> {
    let function = match vendor {
        Vendor::Intel => 4,
        Vendor::Amd => 0x8000_001D,
    };
    let subleaf = |index| find(entries, function, index).and_then(|leaf| decode(&leaf));
    // Far more than any CPU has; a list that does not end is not followed for ever.
    (0..16).map_while(subleaf).collect()
}

fn decode(leaf: &CpuidEntry) -> Option<(CacheSpec, u32)> {
    let kind = match get(leaf.eax, 4, 0) {
        1 => CacheKind::Data,
        2 => CacheKind::Instruction,
        3 => CacheKind::Unified,
        _ => return None,
    };
    let (ways, line_bytes) = (get(leaf.ebx, 31, 22) + 1, get(leaf.ebx, 11, 0) + 1);
    let partitions = get(leaf.ebx, 21, 12) + 1;
    let way_bytes = u64::from(line_bytes) * u64::from(partitions) * (u64::from(leaf.ecx) + 1);
    let spec = CacheSpec {
        level: u8::try_from(get(leaf.eax, 7, 5)).unwrap_or(u8::MAX),
        kind,
        size_bytes: way_bytes.saturating_mul(u64::from(ways)),
        ways,
        line_bytes,
        inclusive: get(leaf.edx, 1, 1) == 1,
    };
    Some((spec, get(leaf.eax, 25, 14) + 1))
}

/// The caches of the host, for [`GuestTopology::with_caches`]: their sizes, not who shares them.
///
/// Levels above 3 and what makes no sense are left out; empty when CPUID says nothing.
#[must_use]
pub fn host_caches(host: &[CpuidEntry]) -> Vec<CacheSpec> {
    let mut caches: Vec<CacheSpec> = Vec::new();
    for (cache, _) in read(host, Vendor::of(host)) {
        let known = caches.iter().any(|other| (other.level, other.kind) == (cache.level, cache.kind));
        if !known && cache.check().is_ok() {
            caches.push(cache);
        }
    }
    caches
}
