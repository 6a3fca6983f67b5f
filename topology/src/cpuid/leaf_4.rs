// SPDX-License-Identifier: Apache-2.0
//! Leaf 4 (Intel): caches, and the ids of cores in a package.
//!
//! Linux takes the L2 sharing of this leaf as the scheduler's cluster level and the L3 sharing as the last-level cache
//! (`init_intel_cacheinfo`, 6.1 and 6.12), so a cluster needs no other leaf to be seen.

use crate::cpuid::cache_parameters;
use crate::cpuid::{CpuidEntry, register};
use crate::guest::GuestTopology;

pub(super) fn entries(machine: &GuestTopology) -> Vec<CpuidEntry> {
    let layout = machine.apic_layout();
    let core_ids = 1 << (layout.package_shift() - layout.core_shift());
    let mut entries = cache_parameters::entries(4, machine);
    // The last one ends the list and says nothing.
    let caches = entries.len() - 1;
    for leaf in &mut entries[..caches] {
        // CPUID.(EAX=04H,ECX=n):EAX[31:26]: addressable core ids in the package, less one.
        register::set(&mut leaf.eax, 31, 26, core_ids - 1);
    }
    entries
}
