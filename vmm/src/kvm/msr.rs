// SPDX-License-Identifier: Apache-2.0
//! Model-specific registers that firmware sets before a kernel runs, and KVM does not.
//!
//! A register that KVM does not take is left as it is: a kernel boots without, and says so.

use std::io;

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

/// IA32_MTRR_DEF_TYPE (Intel SDM vol. 4, table 2-2).
const MTRR_DEF_TYPE: u32 = 0x2FF;
/// MTRRs enabled, all of memory write-back (vol. 3A, section 12.11.2.1): RAM is what there is; devices have no memory.
const MTRR_ENABLED_WRITE_BACK: u64 = 1 << 11 | 6;
/// IA32_MISC_ENABLE.
const MISC_ENABLE: u32 = 0x1A0;
/// Fast strings, which an Intel processor has on after reset and Linux takes for the sign of fast `rep movsb`.
const FAST_STRINGS: u64 = 1;

/// Sets them. `intel` says whose processor the guest sees.
pub(super) fn set_as_firmware_does(vcpu: &VcpuFd, intel: bool) -> io::Result<()> {
    set(vcpu, MTRR_DEF_TYPE, MTRR_ENABLED_WRITE_BACK)?;
    if intel {
        let mut read = one(MISC_ENABLE, 0)?;
        if vcpu.get_msrs(&mut read)? == 1
            && let Some(entry) = read.as_slice().first()
        {
            set(vcpu, MISC_ENABLE, entry.data | FAST_STRINGS)?;
        }
    }
    Ok(())
}

fn set(vcpu: &VcpuFd, index: u32, data: u64) -> io::Result<()> {
    // The answer is how many registers were taken: none, where KVM refuses this one.
    vcpu.set_msrs(&one(index, data)?)?;
    Ok(())
}

fn one(index: u32, data: u64) -> io::Result<Msrs> {
    let entry = kvm_msr_entry { index, data, ..Default::default() };
    Msrs::from_entries(&[entry]).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))
}
