// SPDX-License-Identifier: Apache-2.0
//! `/dev/kvm`: opened, checked, asked what it can do.

use std::io;

use kvm_ioctls::{Cap, Kvm};
use topology::cpuid::offer_tsc_deadline;

use super::cpuid::{self, HostCpuid};

/// The KVM API version that every kernel since 2.6.22 reports (Documentation/virt/kvm/api.rst, `KVM_GET_API_VERSION`).
pub const API_VERSION: i32 = 12;

/// Why `/dev/kvm` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such device.
    #[error(
        "/dev/kvm does not exist: this host's kernel has no KVM, or its module is not loaded; load kvm_intel or \
         kvm_amd, or enable virtualisation in the firmware; or run the same on an emulated host: `vmm lab -- ARGS...`"
    )]
    Missing,
    /// The device is there and we may not open it.
    #[error(
        "/dev/kvm: permission denied; add the user to the group that owns the device, usually `kvm`, or run as root"
    )]
    Permission,
    /// Opening failed in another way.
    #[error("/dev/kvm cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// Something that answers no question of KVM's.
    #[error(
        "/dev/kvm is not KVM's device: it does not say which API version it speaks; put the device back (mknod /dev/kvm c 10 232)"
    )]
    NotKvm,
    /// A version of the interface that nobody has seen.
    #[error("/dev/kvm speaks API version {found}, this monitor speaks {API_VERSION}: update the monitor")]
    ApiVersion {
        /// What the kernel reported.
        found: i32,
    },
}

/// KVM itself: what it can do. [`Vm::create`](super::vm::Vm::create) makes virtual machines of it.
#[derive(Debug)]
pub struct System {
    kvm: Kvm,
}

impl System {
    /// Opens `/dev/kvm` and checks its version.
    ///
    /// # Errors
    /// [`OpenError`], one variant per cause.
    pub fn open() -> Result<Self, OpenError> {
        let kvm = Kvm::new().map_err(|error| match error.errno() {
            libc::ENOENT | libc::ENODEV | libc::ENXIO => OpenError::Missing,
            libc::EACCES | libc::EPERM => OpenError::Permission,
            errno => OpenError::Open(io::Error::from_raw_os_error(errno)),
        })?;
        match kvm.get_api_version() {
            API_VERSION => Ok(Self { kvm }),
            // kvm-ioctls gives what the call gave: an error is -1.
            found if found < 0 => Err(OpenError::NotKvm),
            found => Err(OpenError::ApiVersion { found }),
        }
    }

    /// Most vCPUs a VM may have (`KVM_CAP_MAX_VCPUS`).
    #[must_use]
    pub fn max_vcpus(&self) -> u32 {
        u32::try_from(self.kvm.get_max_vcpus()).unwrap_or(u32::MAX)
    }

    /// First vCPU id, and so APIC id, that is out of range (`KVM_CAP_MAX_VCPU_ID`).
    #[must_use]
    pub fn max_vcpu_id(&self) -> u32 {
        u32::try_from(self.kvm.get_max_vcpu_id()).unwrap_or(u32::MAX)
    }

    /// The value of a capability as a non-negative number; 0 when the kernel does not know it.
    #[must_use]
    pub fn capability(&self, cap: Cap) -> u32 {
        u32::try_from(self.kvm.check_extension_int(cap)).unwrap_or(0)
    }

    /// As [`System::capability`], by number: for those that kvm-ioctls has no name for.
    #[must_use]
    pub fn capability_raw(&self, capability: u32) -> u32 {
        u32::try_from(self.kvm.check_extension_raw(capability.into())).unwrap_or(0)
    }

    /// What KVM can show a guest of the host's CPUID (`KVM_GET_SUPPORTED_CPUID`), with the TSC-deadline timer where the
    /// APIC in the kernel has it.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn supported_cpuid(&self) -> io::Result<HostCpuid> {
        let mut entries = cpuid::supported(&self.kvm)?;
        offer_tsc_deadline(&mut entries, self.kvm.check_extension(Cap::TscDeadlineTimer));
        Ok(entries)
    }

    /// The device itself, for what makes virtual machines of it.
    pub(super) const fn kvm(&self) -> &Kvm {
        &self.kvm
    }
}
