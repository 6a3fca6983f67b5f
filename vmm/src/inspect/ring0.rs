// SPDX-License-Identifier: Apache-2.0
//! How fast guest kernel mode runs, measured with a throw-away VM.
//!
//! A host may have `/dev/kvm` without hardware virtualisation; guest user mode then runs natively, but guest kernel
//! mode runs through KVM's instruction emulator, hundreds of times slower and with instructions missing. No capability
//! tells, so this runs a loop of known length in 64-bit ring 0 and looks at the clock. The invariant: the VM, its vCPU
//! and its memory are gone when the function returns.

#![expect(unsafe_code, reason = "KVM takes the address of guest memory")]

use std::time::Instant;

use kvm_bindings::{kvm_dtable, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use serde::Serialize;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Guest memory: four pages of [`PAGE`] bytes.
const MEMORY_BYTES: usize = 0x4000;
const PML4: u64 = 0x1000;
const PDPT: u64 = 0x2000;
const PD: u64 = 0x3000;
/// The loop stands in the first page.
const CODE: u64 = 0x0;
/// Present and writable (Intel SDM vol. 3A, section 5.5, table 5-15 and following).
const PRESENT_WRITABLE: u64 = 0b11;
/// A page directory entry that maps 2 MiB (bit 7, PS).
const LARGE: u64 = 1 << 7;

/// `1: dec %rcx; jnz 1b; out %al, $0x80; jmp 1b`: two instructions a turn, then an exit.
const LOOP: [u8; 9] = [0x48, 0xFF, 0xC9, 0x75, 0xFB, 0xE6, 0x80, 0xEB, 0xF7];
const INSTRUCTIONS_A_TURN: u64 = 2;

/// Turns of the first timed run: half a millisecond at the few million instructions a second of KVM's emulator.
const FEWEST_TURNS: u64 = 1_000;
/// Turns of the last run: about a millisecond for a CPU.
const MOST_TURNS: u64 = 1_000_000;
/// A run this long is not made ten times as long: entry and exit take a hundredth of it.
const LONG_ENOUGH_S: f64 = 1e-3;
/// Instructions a second that no emulator of single instructions reaches and every CPU does.
const NATIVE_AT_LEAST: f64 = 20e6;

/// How guest kernel mode runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ring0Mode {
    /// By the CPU itself.
    Native,
    /// By KVM's instruction emulator: an unmodified kernel does not get far.
    Emulated,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ring0 {
    /// How guest kernel mode runs.
    pub mode: Ring0Mode,
    /// Simple instructions a second in guest ring 0.
    pub instructions_per_s: f64,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Ring0Error {
    /// KVM refused a step.
    #[error("KVM refused {step}: {source}")]
    Kvm {
        /// What was asked of it.
        step: &'static str,
        /// What it said.
        source: kvm_ioctls::Error,
    },
    /// There is no memory for four pages.
    #[error("no memory for a throw-away VM: {reason}")]
    Memory {
        /// What was said.
        reason: String,
    },
    /// The loop ended in another way than it was written.
    #[error("the throw-away guest ended with {exit} instead of its port write")]
    Exit {
        /// The exit.
        exit: String,
    },
}

/// Runs the loop, and again ten times as long until it takes a millisecond.
///
/// # Errors
/// KVM refused a step, or the guest did something else.
pub fn measure(kvm: &Kvm) -> Result<Ring0, Ring0Error> {
    let memory = guest_memory()?;
    let vm = kvm.create_vm().map_err(refused("KVM_CREATE_VM"))?;
    add_memory(&vm, &memory)?;
    let mut vcpu = vm.create_vcpu(0).map_err(refused("KVM_CREATE_VCPU"))?;
    enter_long_mode(&vcpu)?;
    // The first turns pay for the page faults of KVM.
    seconds_for(&mut vcpu, 1)?;
    let (mut turns, mut seconds) = (FEWEST_TURNS, seconds_for(&mut vcpu, FEWEST_TURNS)?);
    while seconds < LONG_ENOUGH_S && turns < MOST_TURNS {
        turns *= 10;
        seconds = seconds_for(&mut vcpu, turns)?;
    }
    let instructions_per_s = rate(turns, seconds);
    // KVM keeps the address of the memory until both are closed.
    drop((vcpu, vm));
    drop(memory);
    Ok(Ring0 { mode: mode_of(instructions_per_s), instructions_per_s })
}

fn mode_of(instructions_per_s: f64) -> Ring0Mode {
    if instructions_per_s >= NATIVE_AT_LEAST { Ring0Mode::Native } else { Ring0Mode::Emulated }
}

fn rate(turns: u64, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a few million: exact")]
    let instructions = (turns * INSTRUCTIONS_A_TURN) as f64;
    instructions / seconds.max(1e-9)
}

fn refused(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Ring0Error {
    move |source| Ring0Error::Kvm { step, source }
}

/// The loop, and page tables that map the first 2 MiB to themselves.
fn guest_memory() -> Result<GuestMemoryMmap, Ring0Error> {
    let failed = |reason: String| Ring0Error::Memory { reason };
    let memory =
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).map_err(|error| failed(error.to_string()))?;
    let put =
        |at: u64, bytes: &[u8]| memory.write_slice(bytes, GuestAddress(at)).map_err(|error| failed(error.to_string()));
    put(CODE, &LOOP)?;
    put(PML4, &(PDPT | PRESENT_WRITABLE).to_le_bytes())?;
    put(PDPT, &(PD | PRESENT_WRITABLE).to_le_bytes())?;
    put(PD, &(LARGE | PRESENT_WRITABLE).to_le_bytes())?;
    Ok(memory)
}

fn add_memory(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), Ring0Error> {
    let address =
        memory.get_host_address(GuestAddress(0)).map_err(|error| Ring0Error::Memory { reason: error.to_string() })?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY_BYTES as u64,
        userspace_addr: address as u64,
    };
    // SAFETY: the region is exactly the mapping of `memory`, which `measure` keeps until the VM is closed.
    unsafe { vm.set_user_memory_region(region) }.map_err(refused("KVM_SET_USER_MEMORY_REGION"))
}

/// 64-bit mode in ring 0 with flat segments (Intel SDM vol. 3A, section 10.8.5).
fn enter_long_mode(vcpu: &VcpuFd) -> Result<(), Ring0Error> {
    const CR0_PE_PG: u64 = 1 | 1 << 31;
    const CR4_PAE: u64 = 1 << 5;
    const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;
    let mut sregs = vcpu.get_sregs().map_err(refused("KVM_GET_SREGS"))?;
    let data = kvm_segment {
        limit: 0xFFFF_FFFF,
        selector: 0x10,
        // Read/write data, accessed.
        type_: 3,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..kvm_segment::default()
    };
    // Execute/read code, accessed; L selects 64-bit code and excludes D.
    sregs.cs = kvm_segment { selector: 0x8, type_: 11, db: 0, l: 1, ..data };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    (sregs.gdt, sregs.idt) = (kvm_dtable::default(), kvm_dtable::default());
    sregs.cr3 = PML4;
    sregs.cr4 = CR4_PAE;
    sregs.cr0 = CR0_PE_PG;
    sregs.efer = EFER_LME_LMA;
    vcpu.set_sregs(&sregs).map_err(refused("KVM_SET_SREGS"))
}

/// Seconds from before KVM_RUN until the guest's port write.
fn seconds_for(vcpu: &mut VcpuFd, turns: u64) -> Result<f64, Ring0Error> {
    let mut regs = vcpu.get_regs().map_err(refused("KVM_GET_REGS"))?;
    (regs.rip, regs.rcx, regs.rflags) = (CODE, turns, 2);
    vcpu.set_regs(&regs).map_err(refused("KVM_SET_REGS"))?;
    let start = Instant::now();
    match vcpu.run().map_err(refused("KVM_RUN"))? {
        VcpuExit::IoOut(0x80, _) => {}
        other => return Err(Ring0Error::Exit { exit: format!("{other:?}") }),
    }
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_a_second_is_an_emulator_and_a_thousand_million_a_cpu() {
        assert_eq!(mode_of(1.2e6), Ring0Mode::Emulated);
        assert_eq!(mode_of(1.9e9), Ring0Mode::Native);
    }

    #[test]
    fn a_rate_is_finite_whatever_the_clock_says() {
        assert!(rate(MOST_TURNS, 0.0).is_finite());
        assert!((rate(500, 1.0) - 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn the_loop_jumps_to_its_start_and_past_its_end() {
        let target = |at: usize| at + 2 + usize::from(LOOP[at + 1]) - 256;
        assert_eq!((LOOP[3], target(3)), (0x75, 0));
        assert_eq!((LOOP[7], target(7)), (0xEB, 0));
        assert_eq!(LOOP[5..7], [0xE6, 0x80]);
    }
}
