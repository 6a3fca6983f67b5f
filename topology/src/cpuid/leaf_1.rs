// SPDX-License-Identifier: Apache-2.0
//! Leaf 1: initial APIC id, logical processors in a package, and the feature bits that belong to them.
//!
//! The features of the host stay; only the bits named here change.

use crate::cpuid::register::{set, set_bit};
use crate::cpuid::{CpuidEntry, Vendor};
use crate::guest::GuestTopology;
use crate::id::VcpuIndex;

/// Offers the local APIC timer's TSC-deadline mode, or does not, in the list of what a host supports.
///
/// `offered` is whether KVM has `KVM_CAP_TSC_DEADLINE_TIMER`: the mode depends on the APIC in the kernel, so
/// `KVM_GET_SUPPORTED_CPUID` never has the bit (Documentation/virt/kvm/api.rst, 4.46). A list without leaf 1 stays as it is.
pub fn offer_tsc_deadline(host: &mut [CpuidEntry], offered: bool) {
    for leaf in host.iter_mut().filter(|leaf| leaf.function == 1) {
        // CPUID.01H:ECX[24]: TSC-deadline (SDM, table 3-10).
        set_bit(&mut leaf.ecx, 24, offered);
    }
}

pub(super) fn write(leaf: &mut CpuidEntry, machine: &GuestTopology, cpu: VcpuIndex, vendor: Vendor) {
    let package_cpus = machine.shape().package_cpus();
    // CPUID.01H:EBX[31:24]: initial APIC id, its low 8 bits where it is wider (SDM; APM E.3.2 "LocalApicId").
    set(&mut leaf.ebx, 31, 24, machine.apic_id(cpu).0 & 0xFF);
    let count = match vendor {
        // Addressable ids in a package, a power of two.
        Vendor::Intel => 1 << machine.apic_layout().package_shift(),
        // Processors in a package.
        Vendor::Amd => package_cpus,
    };
    // CPUID.01H:EBX[23:16]: maximum number of addressable ids in the package (SDM); "LogicalProcessorCount" (APM).
    set(&mut leaf.ebx, 23, 16, count);
    // CPUID.01H:EDX[28] HTT: EBX[23:16] is valid, that is, a package has more than one logical processor.
    set_bit(&mut leaf.edx, 28, package_cpus > 1);
    // CPUID.01H:ECX[21]: x2APIC, emulated by KVM on every host.
    set_bit(&mut leaf.ecx, 21, true);
    // CPUID.01H:ECX[31]: runs under a hypervisor (reserved for that by both vendors).
    set_bit(&mut leaf.ecx, 31, true);
}
