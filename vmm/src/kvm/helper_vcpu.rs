// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "KVM maps a page of this program's own text into an address space of the VM")]
//! The helper vCPU: how user space has the kernel yield to one thread and no other, on any kernel since 5.4.
//!
//! KVM answers the hypercall KVM_HC_SCHED_YIELD with `yield_to` on the thread that runs the calling vCPU
//! (Documentation/virt/kvm/x86/hypercalls.rst). So a vCPU thread that runs a second vCPU, whose only code is that
//! hypercall and an `OUT`, yields itself to whom it names.
//!
//! The guest cannot get at it. Its id is an x2APIC id above every id of the guest and above 255, in no table. It is in
//! system management mode for ever: there INIT and SMI wait and SIPI is dropped (Intel SDM vol. 3C, sections 26.3 and 34.3;
//! `kvm_apic_init_sipi_allowed`), and its one page is in the address space that only that mode has. NMI is masked, its
//! local APIC is disabled by software, so that other interrupts are dropped, and the page is read-only. Invariant: it has
//! no instruction that waits, so a run ends after two exits, or by a signal.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use kvm_bindings::{
    KVM_CAP_MULTI_ADDRESS_SPACE, KVM_CAP_READONLY_MEM, KVM_CAP_SYNC_REGS, KVM_CAP_X86_SMM, KVM_MEM_READONLY,
    KVM_MP_STATE_RUNNABLE, KVM_SYNC_X86_REGS, KVM_VCPUEVENT_VALID_SMM, kvm_mp_state, kvm_regs,
    kvm_userspace_memory_region, kvm_vcpu_events,
};
use kvm_ioctls::{SyncReg, VcpuFd, VmFd};
use topology::cpuid::CpuidEntry;
use topology::id::ApicId;

use super::cpuid::{self, CpuidError};
use super::exit::{self, Exit};
use super::stats::{Layout, Stats};
use super::system::System;
use super::vcpu::{RFLAGS_RESERVED, pvh_segments};
use crate::host::limits;
use crate::layout;
use crate::memory::GuestRam;
use crate::report::KvmKind;

/// KVM_HC_SCHED_YIELD (include/uapi/linux/kvm_para.h); RBX holds the APIC id to yield to.
const KVM_HC_SCHED_YIELD: u64 = 11;
/// Slots of the address space of system management mode carry its number in bits 16 and up
/// (Documentation/virt/kvm/api.rst, 4.35 `KVM_SET_USER_MEMORY_REGION`).
const SMM_SLOT: u32 = 1 << 16;
/// IA32_APIC_BASE: APIC enabled, x2APIC mode (Intel SDM vol. 3A, section 11.12.1).
const APIC_X2APIC: u64 = 1 << 11 | 1 << 10;
/// The first id that no xAPIC can address.
const FIRST_ID: u32 = 256;
/// Counters of a vCPU (arch/x86/kvm/x86.c, `kvm_vcpu_stats_desc`).
const ATTEMPTED: &str = "directed_yield_attempted";
/// See [`ATTEMPTED`].
const SUCCESSFUL: &str = "directed_yield_successful";

const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == layout::PAGE_SIZE, "one page");

/// Code of every helper vCPU, in 32-bit mode.
#[repr(C, align(4096))]
struct CodePage([u8; PAGE_BYTES]);

/// Offset of the hypercall as SVM spells it: `vmmcall; out 0x81, al; jmp` to itself.
const SVM_CODE: (usize, [u8; 7]) = (0, [0x0F, 0x01, 0xD9, 0xE6, layout::HELPER_PORT, 0xEB, 0xFE]);
/// As VMX spells it: `vmcall`.
const VMX_CODE: (usize, [u8; 7]) = (0x40, [0x0F, 0x01, 0xC1, 0xE6, layout::HELPER_PORT, 0xEB, 0xFE]);
/// `jmp` to itself: something that runs until a signal ends it.
const BUSY_CODE: (usize, [u8; 2]) = (0x80, [0xEB, 0xFE]);

static CODE: CodePage = {
    /// `hlt` would wait; `int3` ends in a triple fault.
    const FILLER: u8 = 0xCC;
    let mut page = [FILLER; PAGE_BYTES];
    let mut at = 0;
    while at < SVM_CODE.1.len() {
        page[SVM_CODE.0 + at] = SVM_CODE.1[at];
        page[VMX_CODE.0 + at] = VMX_CODE.1[at];
        at += 1;
    }
    page[BUSY_CODE.0] = BUSY_CODE.1[0];
    page[BUSY_CODE.0 + 1] = BUSY_CODE.1[1];
    CodePage(page)
};

/// Why a VM has no helper vCPUs.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// Hypercalls do not end there.
    #[error("this KVM is software-virtualised: a hypercall instruction loops for ever there")]
    Software,
    /// A capability is missing.
    #[error("this KVM has no {0}, which helper vCPUs need")]
    Lacks(&'static str),
    /// There would be more vCPUs than KVM allows.
    #[error(
        "with a helper for each vCPU there are {needed} vCPUs, with ids up to {highest}; this KVM takes {vcpus} and {ids}"
    )]
    TooMany {
        /// vCPUs with their helpers.
        needed: u32,
        /// Highest id.
        highest: u32,
        /// Most vCPUs.
        vcpus: u32,
        /// Ids.
        ids: u32,
    },
    /// The page.
    #[error("KVM does not take the helper vCPUs' page: {0}")]
    Page(#[source] io::Error),
    /// The vCPU.
    #[error("a helper vCPU cannot be made: {0}")]
    Create(#[source] io::Error),
    /// Its state.
    #[error("a helper vCPU does not take its {what}: {source}")]
    State {
        /// What was set.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Its CPUID.
    #[error("a helper vCPU does not take its CPUID: {0}")]
    Cpuid(#[source] CpuidError),
    /// It came back with something else than its `OUT`.
    #[error("a helper vCPU ended with {0}")]
    Exit(String),
}

/// Where the helper vCPUs of one VM come from. One helper for each vCPU of the guest.
#[derive(Clone, Debug)]
pub struct HelperVcpus {
    // Dropped before `ram`, as everywhere.
    vm: Arc<VmFd>,
    ram: Option<GuestRam>,
    cpuid: Arc<[CpuidEntry]>,
    entry: usize,
    first_id: u32,
}

impl HelperVcpus {
    /// Looks whether this KVM can have them, and gives their page to the VM.
    pub(super) fn new(
        vm: &Arc<VmFd>,
        ram: Option<GuestRam>,
        system: &System,
        kind: KvmKind,
        ids: &[ApicId],
    ) -> Result<Self, HelperError> {
        let entry = match kind {
            KvmKind::Vmx => VMX_CODE.0,
            KvmKind::Svm => SVM_CODE.0,
            KvmKind::Software => return Err(HelperError::Software),
        };
        let first_id = first_id(ids);
        check(system, ids.len(), first_id)?;
        let cpuid = system.supported_cpuid().map_err(|source| HelperError::State { what: "CPUID", source })?;
        let slot = kvm_userspace_memory_region {
            slot: SMM_SLOT,
            flags: KVM_MEM_READONLY,
            guest_phys_addr: layout::HELPER_PAGE,
            memory_size: layout::PAGE_SIZE,
            userspace_addr: (&raw const CODE) as u64,
        };
        // SAFETY: a page of this program's own constants, which is there for as long as the process, and the slot is
        // read-only, so nothing writes to it. No other slot has this number.
        unsafe { vm.set_user_memory_region(slot) }.map_err(|error| HelperError::Page(error.into()))?;
        Ok(Self { vm: Arc::clone(vm), ram, cpuid: cpuid.into(), entry, first_id })
    }

    /// The APIC id of the helper of the vCPU at `position` in the VM, made or not.
    #[must_use]
    pub fn id(&self, position: u32) -> ApicId {
        ApicId(self.first_id.saturating_add(position))
    }

    /// Makes the helper of the vCPU at `position`. Once for each; after the interrupt controllers.
    ///
    /// # Errors
    /// [`HelperError`].
    pub fn make(&self, position: u32) -> Result<HelperVcpu, HelperError> {
        self.make_at(position, self.entry)
    }

    /// Makes a vCPU in the place of a helper that runs until a signal ends it: something to yield to.
    ///
    /// # Errors
    /// [`HelperError`].
    pub fn make_busy(&self, position: u32) -> Result<HelperVcpu, HelperError> {
        self.make_at(position, BUSY_CODE.0)
    }

    fn make_at(&self, position: u32, entry: usize) -> Result<HelperVcpu, HelperError> {
        let id = self.id(position);
        let fd = self.vm.create_vcpu(u64::from(id.0)).map_err(|error| HelperError::Create(error.into()))?;
        let fd = limits::spare(fd).map_err(HelperError::Create)?;
        cpuid::set(&fd, &self.cpuid).map_err(HelperError::Cpuid)?;
        let stats = Stats::open(&fd, None).ok().filter(|stats| has_counters(stats.layout()));
        let run_bytes = self.vm.run_size();
        let mut helper =
            HelperVcpu { fd, run_bytes, _ram: self.ram.clone(), entry: layout::HELPER_PAGE + entry as u64, stats };
        helper.reset()?;
        Ok(helper)
    }
}

/// The first id of the helpers of a guest with `ids`.
fn first_id(ids: &[ApicId]) -> u32 {
    let above = ids.iter().map(|id| id.0.saturating_add(1)).max().unwrap_or(0);
    above.max(FIRST_ID).checked_next_multiple_of(FIRST_ID).unwrap_or(u32::MAX)
}

fn check(system: &System, guests: usize, first_id: u32) -> Result<(), HelperError> {
    let lacks = [
        (system.capability_raw(KVM_CAP_X86_SMM), 1, "system management mode (KVM_CAP_X86_SMM)"),
        (system.capability_raw(KVM_CAP_MULTI_ADDRESS_SPACE), 2, "second address space (KVM_CAP_MULTI_ADDRESS_SPACE)"),
        (system.capability_raw(KVM_CAP_READONLY_MEM), 1, "read-only memory (KVM_CAP_READONLY_MEM)"),
        (system.capability_raw(KVM_CAP_SYNC_REGS) & KVM_SYNC_X86_REGS, 1, "shared registers (KVM_CAP_SYNC_REGS)"),
    ];
    if let Some((_, _, what)) = lacks.iter().find(|(found, needed, _)| found < needed) {
        return Err(HelperError::Lacks(what));
    }
    let guests = u32::try_from(guests).unwrap_or(u32::MAX);
    let (needed, highest) = (guests.saturating_mul(2), first_id.saturating_add(guests.saturating_sub(1)));
    let (vcpus, ids) = (system.max_vcpus(), system.max_vcpu_id());
    if needed > vcpus || highest >= ids {
        return Err(HelperError::TooMany { needed, highest, vcpus, ids });
    }
    Ok(())
}

fn has_counters(layout: &Layout) -> bool {
    layout.find(ATTEMPTED).is_some() && layout.find(SUCCESSFUL).is_some()
}

/// What KVM did with a request to yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectedYield {
    /// It yielded to the target.
    Done,
    /// It saw the request and did not yield: the target runs, is not in the guest, waits, or nobody else is runnable.
    Refused,
    /// A signal came first.
    Interrupted,
    /// This kernel does not say.
    Unsaid,
}

/// One helper vCPU, run by the thread that it makes yield.
#[derive(Debug)]
pub struct HelperVcpu {
    // Dropped before `_ram`: an open vCPU keeps the VM, and with it the memory slots, alive in the kernel.
    fd: VcpuFd,
    run_bytes: usize,
    _ram: Option<GuestRam>,
    entry: u64,
    stats: Option<Stats>,
}

impl HelperVcpu {
    /// Puts it into the state that it is in between two runs, whatever happened.
    fn reset(&mut self) -> Result<(), HelperError> {
        let failed = |what| move |error: kvm_ioctls::Error| HelperError::State { what, source: error.into() };
        self.fd.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE }).map_err(failed("running state"))?;
        let mut sregs = self.fd.get_sregs().map_err(failed("segments"))?;
        pvh_segments(&mut sregs);
        sregs.apic_base |= APIC_X2APIC;
        self.fd.set_sregs(&sregs).map_err(failed("segments"))?;
        let mut events = kvm_vcpu_events { flags: KVM_VCPUEVENT_VALID_SMM, ..Default::default() };
        events.smi.smm = 1;
        events.nmi.masked = 1;
        self.fd.set_vcpu_events(&events).map_err(failed("system management mode"))?;
        self.set_registers(0);
        Ok(())
    }

    fn set_registers(&mut self, target: u32) {
        self.fd.sync_regs_mut().regs = kvm_regs {
            rax: KVM_HC_SCHED_YIELD,
            rbx: u64::from(target),
            rip: self.entry,
            rflags: RFLAGS_RESERVED,
            ..Default::default()
        };
        self.fd.set_sync_dirty_reg(SyncReg::Register);
    }

    /// Where the handler of a kick writes 1 so that the next run returns at once.
    pub fn immediate_exit(&mut self) -> *mut u8 {
        &raw mut self.fd.get_kvm_run().immediate_exit
    }

    /// Has the kernel yield the calling thread to the one that runs, or last ran, the vCPU with the id `target`.
    ///
    /// # Errors
    /// [`HelperError::Exit`] for an end that it cannot come to by itself; it is ready for another run all the same.
    pub fn yield_to(&mut self, target: ApicId) -> Result<DirectedYield, HelperError> {
        let before = self.counters();
        self.set_registers(target.0);
        if !self.run()? {
            return Ok(DirectedYield::Interrupted);
        }
        Ok(match (before, self.counters()) {
            (Some((_, done_before)), Some((_, done))) if done > done_before => DirectedYield::Done,
            (Some((tried_before, _)), Some((tried, _))) if tried > tried_before => DirectedYield::Refused,
            _ => DirectedYield::Unsaid,
        })
    }

    /// Runs it; false if a signal ended that.
    ///
    /// # Errors
    /// As for [`HelperVcpu::yield_to`].
    pub fn run(&mut self) -> Result<bool, HelperError> {
        let failed = self.fd.run().err().map(|error| error.errno());
        let end = match failed {
            None => match exit::decode(self.fd.get_kvm_run(), self.run_bytes) {
                Exit::PortWrite { port, .. } if port == u16::from(layout::HELPER_PORT) => return Ok(true),
                Exit::Interrupted => return Ok(false),
                other => format!("{other:?}"),
            },
            Some(libc::EINTR) => return Ok(false),
            Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        };
        self.reset()?;
        Err(HelperError::Exit(end))
    }

    /// Yields that were tried, and that were done, as this vCPU's counters say.
    fn counters(&self) -> Option<(u64, u64)> {
        let reading = self.stats.as_ref()?.read().ok()?;
        reading.get(ATTEMPTED).zip(reading.get(SUCCESSFUL))
    }
}

impl AsRawFd for HelperVcpu {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_above_every_id_of_the_guest_and_of_an_xapic() {
        let first = |ids: &[u32]| first_id(&ids.iter().map(|id| ApicId(*id)).collect::<Vec<_>>());
        assert_eq!(first(&[]), 256);
        assert_eq!(first(&[0, 1, 254]), 256);
        assert_eq!(first(&[0, 255]), 256);
        assert_eq!(first(&[256, 3]), 512);
        assert_eq!(first(&[1023]), 1024);
    }

    #[test]
    fn the_page_holds_both_spellings_and_nothing_that_waits() {
        let at = |(offset, code): (usize, [u8; 7])| CODE.0[offset..][..7] == code;
        assert!(at(SVM_CODE) && at(VMX_CODE));
        assert_eq!(CODE.0[VMX_CODE.0 + 2], 0xC1);
        const HLT: u8 = 0xF4;
        assert!(!CODE.0.contains(&HLT));
    }
}
