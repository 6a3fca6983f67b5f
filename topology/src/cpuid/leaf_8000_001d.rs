// SPDX-License-Identifier: Apache-2.0
//! Leaf 0x8000001D (AMD): caches, in the format of leaf 4.
//!
//! Linux takes the last-level cache from the sharing stated here on family 17h models above 1Fh and later families;
//! before, and on Hygon, it takes bits 3 and up of the APIC id for it, whatever CPUID says (`cacheinfo_amd_init_llc_id`,
//! `cacheinfo_hygon_init_llc_id`). The L2 sharing shows in sysfs, but Linux makes no cluster level of it on AMD.

use crate::cpuid::CpuidEntry;
use crate::cpuid::cache_parameters;
use crate::cpuid::register::set;
use crate::guest::GuestTopology;

pub(super) fn entries(machine: &GuestTopology) -> Vec<CpuidEntry> {
    // CPUID.(EAX=8000001DH,ECX=n):EAX[31:26] is reserved, unlike in leaf 4.
    cache_parameters::entries(0x8000_001D, machine)
}

/// Leaf 0x80000006 must have an L3 where this leaf has one: Linux looks there first.
pub(super) fn write_legacy_l3(leaf: &mut CpuidEntry, machine: &GuestTopology) {
    let Some(l3) = machine.caches().iter().find(|cache| cache.level == 3) else {
        leaf.edx = 0;
        return;
    };
    if leaf.edx != 0 {
        return;
    }
    // CPUID.80000006H:EDX[31:18]: size in 512 KiB, [15:12]: associativity, 9 = see leaf 0x8000001D, [11:8]: lines per
    // tag, [7:0]: line size.
    set(&mut leaf.edx, 31, 18, u32::try_from(l3.size_bytes.div_ceil(512 << 10)).unwrap_or(u32::MAX));
    set(&mut leaf.edx, 15, 12, 9);
    set(&mut leaf.edx, 11, 8, 1);
    set(&mut leaf.edx, 7, 0, l3.line_bytes);
}
