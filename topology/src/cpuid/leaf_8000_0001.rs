// SPDX-License-Identifier: Apache-2.0
//! Leaf 0x80000001 (AMD): the bits that say that the topology leaves exist.

use crate::cpuid::CpuidEntry;
use crate::cpuid::register::set_bit;
use crate::guest::GuestTopology;

pub(super) fn write(leaf: &mut CpuidEntry, machine: &GuestTopology) {
    // CPUID.80000001H:ECX[1] CmpLegacy: the processors that leaf 1 counts are cores too, not only threads.
    set_bit(&mut leaf.ecx, 1, machine.shape().package_cpus() > 1);
    // CPUID.80000001H:ECX[22] TopologyExtensions: leaves 0x8000001D and 0x8000001E exist.
    set_bit(&mut leaf.ecx, 22, true);
}
