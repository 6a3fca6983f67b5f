// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "KVM maps our memory into the guest; whatever keeps the VM alive keeps the memory too")]
//! One virtual machine: its memory slots, its interrupt controllers, its vCPUs.

use std::io;
use std::sync::{Arc, OnceLock};

use kvm_bindings::{KVM_IRQCHIP_IOAPIC, kvm_irqchip, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, VmFd};
use topology::id::ApicId;
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;

use super::helper_vcpu::{HelperError, HelperVcpus};
use super::stats::{Layout, Stats, StatsError};
use super::system::System;
use super::vcpu::Vcpu;
use crate::layout;
use crate::memory::GuestRam;
use crate::report::KvmKind;

/// A request to the kernel about a VM failed.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// `KVM_CREATE_VM`.
    #[error("KVM cannot make a virtual machine: {0}")]
    Create(#[source] io::Error),
    /// `KVM_SET_TSS_ADDR`.
    #[error("KVM does not take the TSS address {address:#x}: {source}")]
    TssAddress {
        /// Guest-physical address.
        address: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// `KVM_CREATE_IRQCHIP`.
    #[error("KVM cannot make the interrupt controllers: {0}")]
    InterruptControllers(#[source] io::Error),
    /// `KVM_CAP_X2APIC_API`.
    #[error("KVM cannot address APIC ids above 254 (KVM_CAP_X2APIC_API): {0}; ask for fewer vCPUs")]
    X2apicIds(#[source] io::Error),
    /// `KVM_SET_USER_MEMORY_REGION`.
    #[error("KVM does not take {bytes:#x} bytes of RAM at {gpa:#x}: {source}; ask for less --memory")]
    MemorySlot {
        /// Guest-physical start.
        gpa: u64,
        /// Length.
        bytes: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// `KVM_IRQFD`.
    #[error("KVM cannot connect interrupt line {gsi}: {source}")]
    InterruptLine {
        /// Global system interrupt.
        gsi: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// `KVM_CREATE_VCPU`.
    #[error("KVM cannot make the vCPU with APIC id {apic_id}: {source}")]
    CreateVcpu {
        /// Which.
        apic_id: ApicId,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A virtual machine. Keeps the RAM that KVM maps alive for as long as it lives itself.
#[derive(Debug)]
pub struct Vm {
    // Dropped before `ram`: the kernel lets go of the memory before it is unmapped.
    fd: Arc<VmFd>,
    ram: Option<GuestRam>,
    vcpu_stats_layout: Arc<OnceLock<Arc<Layout>>>,
}

impl Vm {
    /// Makes an empty virtual machine.
    ///
    /// # Errors
    /// [`VmError::Create`] with the kernel's reason.
    pub fn create(system: &System) -> Result<Self, VmError> {
        // EINTR is the kernel's answer when a signal arrives while it waits for its own set-up.
        let fd = loop {
            match system.kvm().create_vm() {
                Err(error) if error.errno() == libc::EINTR => {}
                other => break other,
            }
        }
        .map_err(|error| VmError::Create(error.into()))?;
        Ok(Self { fd: Arc::new(fd), ram: None, vcpu_stats_layout: Arc::default() })
    }

    /// Gives the guest its RAM: one memory slot a range. Called once, before vCPUs run.
    ///
    /// # Errors
    /// [`VmError::MemorySlot`].
    pub fn set_ram(&mut self, ram: GuestRam) -> Result<(), VmError> {
        for (slot, region) in (0u32..).zip(ram.memory().iter()) {
            let slot = kvm_userspace_memory_region {
                slot,
                flags: 0,
                guest_phys_addr: region.start_addr().raw_value(),
                memory_size: region.len(),
                userspace_addr: region.as_ptr() as u64,
            };
            // SAFETY: the range is a mapping owned by `ram`. The kernel uses it until the last descriptor of the VM and
            // of its vCPUs is closed; `self` and every `Vcpu` made of it hold `ram` and drop it after their descriptor.
            // Slots are distinct and the ranges do not overlap.
            unsafe { self.fd.set_user_memory_region(slot) }.map_err(|error| VmError::MemorySlot {
                gpa: slot.guest_phys_addr,
                bytes: slot.memory_size,
                source: error.into(),
            })?;
        }
        self.ram = Some(ram);
        Ok(())
    }

    /// Makes the in-kernel PIC, I/O APIC and local APICs. There is no PIT: the ACPI tables announce none.
    ///
    /// # Errors
    /// [`VmError::TssAddress`], [`VmError::InterruptControllers`], [`VmError::X2apicIds`] when `wide_ids` is asked for
    /// (an APIC id above 254 exists) and the kernel has no such thing.
    pub fn create_interrupt_controllers(&self, wide_ids: bool) -> Result<(), VmError> {
        self.fd
            .set_tss_address(layout::KVM_TSS)
            .map_err(|error| VmError::TssAddress { address: layout::KVM_TSS, source: error.into() })?;
        self.fd.create_irq_chip().map_err(|error| VmError::InterruptControllers(error.into()))?;
        if wide_ids {
            let mut cap = kvm_bindings::kvm_enable_cap { cap: Cap::X2ApicApi as u32, ..Default::default() };
            cap.args[0] = u64::from(
                kvm_bindings::KVM_X2APIC_API_USE_32BIT_IDS | kvm_bindings::KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK,
            );
            self.fd.enable_cap(&cap).map_err(|error| VmError::X2apicIds(error.into()))?;
        }
        Ok(())
    }

    /// Lets PAUSE run in the guest without an exit. Before the first vCPU is made.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` where the kernel or the processor has no such thing, or vCPUs exist.
    pub fn disable_pause_exits(&self) -> io::Result<()> {
        self.disable_exits(kvm_bindings::KVM_X86_DISABLE_EXITS_PAUSE)
    }

    /// Switches off exits, `KVM_X86_DISABLE_EXITS_*`, beside those that are off already. Before the first vCPU is made.
    ///
    /// # Errors
    /// As for [`Vm::disable_pause_exits`].
    pub fn disable_exits(&self, bits: u32) -> io::Result<()> {
        self.enable(kvm_bindings::KVM_CAP_X86_DISABLE_EXITS, bits)
    }

    /// Sets the longest time for which the kernel polls for a halted vCPU of this VM, in nanoseconds.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` where it has no such thing.
    pub fn limit_halt_poll(&self, ns: u32) -> io::Result<()> {
        self.enable(kvm_bindings::KVM_CAP_HALT_POLL, ns)
    }

    /// Has accesses to model-specific registers that KVM does not know come out as exits, to be counted.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` where it has no such thing; such accesses then fault in the guest uncounted.
    pub fn exit_on_unknown_msrs(&self) -> io::Result<()> {
        self.enable(kvm_bindings::KVM_CAP_X86_USER_SPACE_MSR, kvm_bindings::KVM_MSR_EXIT_REASON_UNKNOWN)
    }

    fn enable(&self, capability: u32, argument: u32) -> io::Result<()> {
        let mut cap = kvm_bindings::kvm_enable_cap { cap: capability, ..Default::default() };
        cap.args[0] = u64::from(argument);
        Ok(self.fd.enable_cap(&cap)?)
    }

    /// Lets a write to `event` raise the interrupt line `gsi` (edge triggered).
    ///
    /// # Errors
    /// [`VmError::InterruptLine`].
    pub fn connect_interrupt(&self, event: &EventFd, gsi: u32) -> Result<(), VmError> {
        self.fd.register_irqfd(event, gsi).map_err(|error| VmError::InterruptLine { gsi, source: error.into() })
    }

    /// Whether the guest has unmasked an interrupt line at the I/O APIC, that is, whether anybody listens.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn interrupt_unmasked(&self, gsi: u32) -> io::Result<bool> {
        /// Mask bit of a redirection table entry (82093AA datasheet, section 3.2.4).
        const MASKED: u64 = 1 << 16;
        let mut chip = kvm_irqchip { chip_id: KVM_IRQCHIP_IOAPIC, ..Default::default() };
        self.fd.get_irqchip(&mut chip)?;
        // SAFETY: `ioapic` is the member that KVM fills for this chip_id, and it is plain integers.
        let entries = unsafe { chip.chip.ioapic.redirtbl };
        let Some(entry) = entries.get(gsi as usize) else { return Ok(false) };
        // SAFETY: `bits` covers the whole entry, so every pattern of it is a valid u64.
        let bits = unsafe { entry.bits };
        Ok(bits & MASKED == 0)
    }

    /// KVM's counters of this VM.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn stats(&self) -> Result<Stats, StatsError> {
        Stats::open(&*self.fd, None)
    }

    /// Where helper vCPUs for a guest with the APIC ids `ids` come from, if this KVM can have them. Once, after
    /// [`Vm::set_ram`].
    ///
    /// # Errors
    /// [`HelperError`].
    pub fn helper_vcpus(&self, system: &System, kind: KvmKind, ids: &[ApicId]) -> Result<HelperVcpus, HelperError> {
        HelperVcpus::new(&self.fd, self.ram.clone(), system, kind, ids)
    }

    /// Makes a vCPU. Its KVM id is its APIC id.
    ///
    /// # Errors
    /// [`VmError::CreateVcpu`].
    pub fn create_vcpu(&self, apic_id: ApicId) -> Result<Vcpu, VmError> {
        self.fd
            .create_vcpu(u64::from(apic_id.0))
            .map(|fd| Vcpu::new(fd, self.fd.run_size(), self.ram.clone(), Arc::clone(&self.vcpu_stats_layout)))
            .map_err(|error| VmError::CreateVcpu { apic_id, source: error.into() })
    }
}
