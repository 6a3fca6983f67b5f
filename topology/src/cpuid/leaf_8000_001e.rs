// SPDX-License-Identifier: Apache-2.0
//! Leaf 0x8000001E (AMD): extended APIC id, core and node (die) of a thread.
//!
//! Leaf 0x80000026, which would state the same levels once more, is left out: Linux 6.9 and later prefer it, KVM does not
//! report it, and its levels (complex, die, socket) have no place for a cluster. The highest extended leaf is kept below
//! it so that nobody looks.

use crate::cpuid::CpuidEntry;
use crate::cpuid::register::set;
use crate::guest::GuestTopology;
use crate::id::VcpuIndex;

/// Makes room for this leaf and none for 0x80000026.
pub(super) fn bound_max_leaf(leaf: &mut CpuidEntry) {
    // CPUID.80000000H:EAX: highest extended leaf.
    leaf.eax = leaf.eax.clamp(0x8000_001E, 0x8000_0025);
}

pub(super) fn entry(machine: &GuestTopology, cpu: VcpuIndex) -> CpuidEntry {
    let (shape, layout) = (machine.shape(), machine.apic_layout());
    let id = machine.apic_id(cpu).0;
    let in_package = id & ((1 << layout.package_shift()) - 1);
    let mut leaf = CpuidEntry { function: 0x8000_001E, ..CpuidEntry::default() };
    // CPUID.8000001EH:EAX[31:0] ExtendedApicId.
    leaf.eax = id;
    // CPUID.8000001EH:EBX[7:0] CoreId: core in the package, its low 8 bits.
    set(&mut leaf.ebx, 7, 0, (in_package >> layout.core_shift()) & 0xFF);
    // CPUID.8000001EH:EBX[15:8] ThreadsPerCore, less one.
    set(&mut leaf.ebx, 15, 8, shape.threads - 1);
    // CPUID.8000001EH:ECX[7:0] NodeId: die in the machine, its low 8 bits.
    set(&mut leaf.ecx, 7, 0, (id >> layout.die_shift()) & 0xFF);
    // CPUID.8000001EH:ECX[10:8] NodesPerProcessor: node ids in a package, less one. Only 1, 2, 4 and 8 have an encoding,
    // so three dies have four ids, as they have in the APIC id; 7 where there are more than 8.
    set(&mut leaf.ecx, 10, 8, (1 << (layout.package_shift() - layout.die_shift())) - 1);
    leaf
}
