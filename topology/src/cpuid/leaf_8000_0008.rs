// SPDX-License-Identifier: Apache-2.0
//! Leaf 0x80000008 (AMD): how many threads a package has, and how many id bits.
//!
//! The address widths in EAX stay the host's.

use crate::cpuid::CpuidEntry;
use crate::cpuid::register::set;
use crate::guest::GuestTopology;

pub(super) fn write(leaf: &mut CpuidEntry, machine: &GuestTopology) {
    // CPUID.80000008H:ECX[7:0] NC: threads in the package, less one; 255 means 256 or more.
    set(&mut leaf.ecx, 7, 0, machine.shape().package_cpus() - 1);
    // CPUID.80000008H:ECX[15:12] ApicIdSize: bits of an APIC id right of the package number. Where it is 0 software takes
    // the bits that NC needs, which is 0 too: only a package of one CPU has no bits.
    set(&mut leaf.ecx, 15, 12, machine.apic_layout().package_shift());
}
