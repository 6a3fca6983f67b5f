// SPDX-License-Identifier: Apache-2.0
//! One vCPU as the kernel knows it: its registers, its CPUID, and the call that runs it.

use std::io;
use std::sync::{Arc, OnceLock};

use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_MP_STATE_UNINITIALIZED, kvm_enable_cap, kvm_mp_state, kvm_regs, kvm_segment,
    kvm_sregs,
};
use kvm_ioctls::{SyncReg, VcpuFd};
use topology::cpuid::CpuidEntry;

use super::cpuid::{self, CpuidError};
use super::exit::{self, Exit};
use super::msr;
use super::stats::{Layout, Stats, StatsError};
use crate::layout;
use crate::memory::GuestRam;

/// Where and how the boot processor starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// PVH: 32-bit protected mode, flat segments, paging off, EBX = `hvm_start_info`
    /// (xen/include/public/arch-x86/hvm/start_info.h, "PVH boot protocol").
    Pvh {
        /// Physical address of the entry point.
        entry: u32,
        /// Physical address of the start info.
        start_info: u32,
    },
    /// Linux in 64-bit mode: identity mapping, flat segments, RSI = `struct boot_params`
    /// (Documentation/arch/x86/boot.rst, "64-bit Boot Protocol"). GDT and page tables are in memory already.
    Long {
        /// Physical address of the entry point.
        entry: u64,
        /// Physical address of the zero page.
        boot_params: u64,
    },
}

/// A vCPU. Whoever holds it exclusively may run it; the kernel serialises the rest.
#[derive(Debug)]
pub struct Vcpu {
    // Dropped before `_ram`: an open vCPU keeps the VM, and with it the memory slots, alive in the kernel.
    fd: VcpuFd,
    run_bytes: usize,
    _ram: Option<GuestRam>,
    // Of all vCPUs of a VM: read by whoever asks first.
    stats_layout: Arc<OnceLock<Arc<Layout>>>,
}

impl Vcpu {
    pub(super) fn new(
        fd: VcpuFd,
        run_bytes: usize,
        ram: Option<GuestRam>,
        stats_layout: Arc<OnceLock<Arc<Layout>>>,
    ) -> Self {
        Self { fd, run_bytes, _ram: ram, stats_layout }
    }

    /// Sets what CPUID shows on this vCPU. Before the first run only.
    ///
    /// # Errors
    /// [`CpuidError`]: too many entries, or the kernel's own, `EINVAL` after the vCPU has run.
    pub fn set_cpuid(&self, entries: &[CpuidEntry]) -> Result<(), CpuidError> {
        cpuid::set(&self.fd, entries)
    }

    /// Refuses paravirtual features that CPUID does not offer (`KVM_CAP_ENFORCE_PV_FEATURE_CPUID`).
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` where it has no such thing.
    pub fn enforce_pv_features(&self) -> io::Result<()> {
        let mut cap = kvm_enable_cap { cap: KVM_CAP_ENFORCE_PV_FEATURE_CPUID, ..Default::default() };
        cap.args[0] = 1;
        Ok(self.fd.enable_cap(&cap)?)
    }

    /// Sets the model-specific registers that firmware sets; `intel` says whose processor the guest sees.
    ///
    /// # Errors
    /// The kernel's own. A register that it does not take is no error.
    pub fn set_firmware_msrs(&self, intel: bool) -> io::Result<()> {
        msr::set_as_firmware_does(&self.fd, intel)
    }

    /// Puts the vCPU into the state in which an application processor waits for INIT and SIPI.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn wait_for_sipi(&self) -> io::Result<()> {
        Ok(self.fd.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_UNINITIALIZED })?)
    }

    /// Sets the registers of the boot processor.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn set_entry(&self, entry: EntryState) -> io::Result<()> {
        let mut sregs = self.fd.get_sregs()?;
        let mut regs = kvm_regs { rflags: RFLAGS_RESERVED, ..Default::default() };
        match entry {
            EntryState::Pvh { entry, start_info } => {
                pvh_segments(&mut sregs);
                (regs.rip, regs.rbx) = (u64::from(entry), u64::from(start_info));
            }
            EntryState::Long { entry, boot_params } => {
                long_mode(&mut sregs);
                (regs.rip, regs.rsi) = (entry, boot_params);
            }
        }
        self.fd.set_sregs(&sregs)?;
        Ok(self.fd.set_regs(&regs)?)
    }

    /// The instruction pointer, for explanations after a failed exit.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn instruction_pointer(&self) -> io::Result<u64> {
        Ok(self.fd.get_regs()?.rip)
    }

    /// Queues a non-maskable interrupt (`KVM_NMI`); the guest takes it when it is entered next.
    pub fn queue_nmi(&self) {
        // KVM only takes note of it (arch/x86/kvm/x86.c, kvm_vcpu_ioctl_nmi), which cannot fail.
        let _ = self.fd.nmi();
    }

    /// KVM's counters of this vCPU.
    ///
    /// # Errors
    /// [`StatsError`].
    pub fn stats(&self) -> Result<Stats, StatsError> {
        let stats = Stats::open(&self.fd, self.stats_layout.get())?;
        self.stats_layout.get_or_init(|| Arc::clone(stats.layout()));
        Ok(stats)
    }

    /// Where the handler of a kick writes 1 so that the next `KVM_RUN` returns at once
    /// (Documentation/virt/kvm/api.rst, `immediate_exit`). Valid while this vCPU lives.
    pub fn immediate_exit(&mut self) -> *mut u8 {
        &raw mut self.fd.get_kvm_run().immediate_exit
    }

    /// Takes back a request to leave `KVM_RUN` at once.
    pub fn clear_immediate_exit(&mut self) {
        self.fd.set_kvm_immediate_exit(0);
    }

    /// The guest-physical address behind a linear one, through the guest's own page tables; `None` if it is not mapped.
    #[must_use]
    pub fn translate(&self, linear: u64) -> Option<u64> {
        self.fd.translate_gva(linear).ok().filter(|found| found.valid != 0).map(|found| found.physical_address)
    }

    /// From now on every exit leaves the general registers where [`Vcpu::shared_rcx`] finds them without a call into the
    /// kernel (Documentation/virt/kvm/api.rst, `KVM_CAP_SYNC_REGS`).
    pub fn share_registers(&mut self) {
        self.fd.set_sync_valid_reg(SyncReg::Register);
    }

    /// RCX as of the last exit; 0 unless registers are shared.
    pub fn shared_rcx(&mut self) -> u64 {
        self.fd.sync_regs_mut().regs.rcx
    }

    /// Has the guest go on with this value in RCX. Registers must be shared, and only the exit just taken may be answered
    /// so: all of them are loaded as they were at that exit.
    pub fn answer_in_rcx(&mut self, value: u64) {
        self.fd.sync_regs_mut().regs.rcx = value;
        self.fd.set_sync_dirty_reg(SyncReg::Register);
    }

    /// Runs the guest until something has to be done outside.
    ///
    /// # Errors
    /// What `KVM_RUN` returns, but for `EINTR` and `EAGAIN`, which are exits.
    pub fn run(&mut self) -> io::Result<Exit<'_>> {
        // The wrapper decodes too, into a type without access width; only whether it succeeded is taken from it.
        let failed = self.fd.run().err().map(|error| error.errno());
        match failed {
            None => Ok(exit::decode(self.fd.get_kvm_run(), self.run_bytes)),
            Some(libc::EINTR) => Ok(Exit::Interrupted),
            Some(libc::EAGAIN) => Ok(Exit::Again),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// RFLAGS[1] reads as one (Intel SDM vol. 1, section 3.4.3).
pub(super) const RFLAGS_RESERVED: u64 = 1 << 1;
/// CR0.PE: protected mode (Intel SDM vol. 3A, section 2.5).
const CR0_PE: u64 = 1;
/// CR0.ET reads as one.
const CR0_ET: u64 = 1 << 4;

/// CR0.PG: paging.
const CR0_PG: u64 = 1 << 31;
/// CR4.PAE: what 64-bit paging is built on.
const CR4_PAE: u64 = 1 << 5;
/// EFER.LME and EFER.LMA: 64-bit mode enabled and active (Intel SDM vol. 3A, section 2.2.1).
const EFER_LONG: u64 = 1 << 8 | 1 << 10;

/// Code, execute/read, accessed (Intel SDM vol. 3A, table 3-1).
const CODE: u8 = 0xB;
/// Data, read/write, accessed.
const DATA: u8 = 0x3;
/// 32-bit or 64-bit TSS, busy (table 3-2).
const TSS_BUSY: u8 = 0xB;

/// A segment of 4 GiB from 0 on.
const fn flat(selector: u16, kind: u8) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: 0xFFFF_FFFF,
        selector,
        type_: kind,
        present: 1,
        dpl: 0,
        db: 1,
        s: 1,
        l: 0,
        g: 1,
        avl: 0,
        unusable: 0,
        padding: 0,
    }
}

/// Flat 32-bit segments and a busy 32-bit TSS, as the PVH boot protocol prescribes.
pub(super) fn pvh_segments(sregs: &mut kvm_sregs) {
    sregs.cs = flat(0x08, CODE);
    let data = flat(0x10, DATA);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.tr = kvm_segment { limit: 0x67, db: 0, s: 0, g: 0, ..flat(0x18, TSS_BUSY) };
    sregs.cr0 = CR0_PE | CR0_ET;
    sregs.cr4 = 0;
    sregs.efer = 0;
}

/// Paging on, and the segments of the GDT at [`layout::GDT`], as the 64-bit boot protocol prescribes.
fn long_mode(sregs: &mut kvm_sregs) {
    sregs.cs = kvm_segment { db: 0, l: 1, ..flat(0x10, CODE) };
    let data = flat(0x18, DATA);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.tr = kvm_segment { limit: 0x67, db: 0, s: 0, g: 0, ..flat(0x20, TSS_BUSY) };
    sregs.gdt.base = layout::GDT;
    sregs.gdt.limit = layout::GDT_LIMIT;
    sregs.idt.limit = 0;
    sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
    sregs.cr3 = layout::PAGE_TABLES;
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LONG;
}
