// SPDX-License-Identifier: Apache-2.0
//! The few facts about the host that every report carries.

use std::arch::x86_64::__cpuid;
use std::fs;
use std::sync::OnceLock;
use std::thread;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use crate::report::KvmKind;

/// What virtualises guests here, by what the processor offers. Asked once: CPUID is slow where a hypervisor answers it.
#[must_use]
pub fn kvm_kind() -> KvmKind {
    static KIND: OnceLock<KvmKind> = OnceLock::new();
    *KIND.get_or_init(of_processor)
}

fn of_processor() -> KvmKind {
    /// CPUID.01H:ECX[5]: VMX.
    const VMX: u32 = 1 << 5;
    /// CPUID.80000001H:ECX[2]: SVM.
    const SVM: u32 = 1 << 2;
    if __cpuid(1).ecx & VMX != 0 {
        KvmKind::Vmx
    } else if __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & SVM != 0 {
        KvmKind::Svm
    } else {
        KvmKind::Software
    }
}

/// The parameter of KVM's vendor module that is 0 where no PAUSE of a guest leaves it; none on software-virtualised KVM,
/// which intercepts no PAUSE at all (arch/x86/kvm/vmx/vmx.c, `ple_gap`; arch/x86/kvm/svm/svm.c, `pause_filter_count`).
#[must_use]
pub const fn pause_exit_parameter(kind: KvmKind) -> Option<&'static str> {
    match kind {
        KvmKind::Vmx => Some("/sys/module/kvm_intel/parameters/ple_gap"),
        KvmKind::Svm => Some("/sys/module/kvm_amd/parameters/pause_filter_count"),
        KvmKind::Software => None,
    }
}

/// Release of the host kernel, as `uname -r` prints it; "unknown" where `/proc` is not mounted.
#[must_use]
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Number of host CPUs online; those this process may use where `/sys` is not mounted. At least 1.
#[must_use]
pub fn cpus_online() -> u32 {
    let online = fs::read_to_string("/sys/devices/system/cpu/online");
    let online = online.ok().and_then(|list| list.trim().parse::<CpuSet<HostCpu>>().ok()).map(|cpus| cpus.len());
    let count = online.filter(|count| *count > 0).or_else(|| thread::available_parallelism().ok().map(Into::into));
    count.map_or(1, |count| u32::try_from(count).unwrap_or(u32::MAX))
}
