// SPDX-License-Identifier: Apache-2.0
//! CPUID across the border: the kernel's tables to and from our own entries.

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use std::io;

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::{Kvm, VcpuFd};
use topology::cpuid::CpuidEntry;

/// What KVM can show a guest of this host's CPUID.
pub type HostCpuid = Vec<CpuidEntry>;

pub(crate) fn supported(kvm: &Kvm) -> io::Result<HostCpuid> {
    let table = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    Ok(table.as_slice().iter().map(from_kernel).collect())
}

/// A vCPU does not take its CPUID.
#[derive(Debug, thiserror::Error)]
pub enum CpuidError {
    /// A longer list than the kernel takes: its limit is 256, and 80 before Linux 5.12
    /// (arch/x86/include/asm/kvm_host.h, `KVM_MAX_CPUID_ENTRIES`).
    #[error(
        "the list has {count} entries, more than the kernel takes ({KVM_MAX_CPUID_ENTRIES}, before Linux 5.12 80); run \
         on a newer kernel, or ask for a machine with fewer levels"
    )]
    TooMany {
        /// Entries of the list.
        count: usize,
    },
    /// Refused for another reason.
    #[error(transparent)]
    Refused(#[from] io::Error),
}

/// Sets what CPUID shows on a vCPU (`KVM_SET_CPUID2`).
pub(super) fn set(vcpu: &VcpuFd, entries: &[CpuidEntry]) -> Result<(), CpuidError> {
    vcpu.set_cpuid2(&to_kernel(entries)?).map_err(|error| match error.errno() {
        libc::E2BIG => CpuidError::TooMany { count: entries.len() },
        errno => CpuidError::Refused(io::Error::from_raw_os_error(errno)),
    })
}

fn to_kernel(entries: &[CpuidEntry]) -> Result<CpuId, CpuidError> {
    let table: Vec<kvm_cpuid_entry2> = entries.iter().map(entry_to_kernel).collect();
    CpuId::from_entries(&table).map_err(|_| CpuidError::TooMany { count: entries.len() })
}

/// What this very processor shows of its vendor, its caches and its address width: for a host without KVM.
#[must_use]
pub fn of_this_processor() -> HostCpuid {
    /// Most subleaves of a cache leaf: more levels than any processor has.
    const CACHES: u32 = 8;
    let plain = [0, 1, 0x8000_0000, 0x8000_0001, 0x8000_0006, 0x8000_0008].map(|function| (function, 0, false));
    let caches =
        [4, 0x8000_001D].into_iter().flat_map(|function| (0..CACHES).map(move |index| (function, index, true)));
    let highest = |function: u32| __cpuid(function & 0x8000_0000).eax;
    plain
        .into_iter()
        .chain(caches)
        .filter(|(function, ..)| *function <= highest(*function))
        .map(|(function, index, indexed)| {
            let CpuidResult { eax, ebx, ecx, edx } = __cpuid_count(function, index);
            CpuidEntry { function, index, indexed, eax, ebx, ecx, edx }
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_named_with_its_length() {
        let entries = |count| vec![CpuidEntry::default(); count];
        assert!(to_kernel(&entries(KVM_MAX_CPUID_ENTRIES)).is_ok());
        let error = to_kernel(&entries(KVM_MAX_CPUID_ENTRIES + 1)).expect_err("one too many").to_string();
        assert!(error.contains("257") && error.contains("256"), "{error}");
    }
}
