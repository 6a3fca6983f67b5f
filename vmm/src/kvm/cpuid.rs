// SPDX-License-Identifier: Apache-2.0
//! CPUID across the border: the kernel's tables to and from our own entries.

use std::io;

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::Kvm;
use topology::cpuid::CpuidEntry;

/// What KVM can show a guest of this host's CPUID.
pub type HostCpuid = Vec<CpuidEntry>;

pub(super) fn supported(kvm: &Kvm) -> io::Result<HostCpuid> {
    let table = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    Ok(table.as_slice().iter().map(from_kernel).collect())
}

/// The table for `KVM_SET_CPUID2`.
pub(super) fn to_kernel(entries: &[CpuidEntry]) -> io::Result<CpuId> {
    let entries: Vec<kvm_cpuid_entry2> = entries.iter().map(entry_to_kernel).collect();
    CpuId::from_entries(&entries).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))
}

fn from_kernel(entry: &kvm_cpuid_entry2) -> CpuidEntry {
    CpuidEntry {
        function: entry.function,
        index: entry.index,
        indexed: entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX != 0,
        eax: entry.eax,
        ebx: entry.ebx,
        ecx: entry.ecx,
        edx: entry.edx,
    }
}

fn entry_to_kernel(entry: &CpuidEntry) -> kvm_cpuid_entry2 {
    kvm_cpuid_entry2 {
        function: entry.function,
        index: entry.index,
        flags: if entry.indexed { KVM_CPUID_FLAG_SIGNIFCANT_INDEX } else { 0 },
        eax: entry.eax,
        ebx: entry.ebx,
        ecx: entry.ecx,
        edx: entry.edx,
        padding: [0; 3],
    }
}
