// SPDX-License-Identifier: Apache-2.0
//! A CPU's block: its descriptors, its stacks, and what it has to tell the others.
//!
//! The layout is shared with boot.S and traps.S, which get every offset from here. Invariant: a block is aligned to its
//! size, so that the block is found from any stack pointer of its CPU; its fields are written by its own CPU, read by
//! the others.

use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cpu_seen::CpuSeen;
use crate::histogram::Histogram;

/// Size and alignment of a block. All of it beyond the first page is the stack of ring 3, growing down.
pub const BLOCK_BYTES: usize = 0x4000;
/// Where the stack of ring 0 begins, growing down to the end of the header.
pub const RING0_STACK_TOP: usize = 0x2000;

/// Ports below this are open to ring 3 by the I/O bitmap as well as by IOPL: where ring 0 is emulated, `iretq` drops
/// IOPL (measured), and the bitmap is what lets ring 3 at its ports.
const BITMAP_PORTS: usize = 0x1000;

/// The 64-bit task state segment: the stack pointer for ring 0, and an I/O bitmap (Intel SDM vol. 3A, section 8.7;
/// vol. 1, section 19.5.2). Zeroes in the bitmap open a port; the byte after it ends a word access to the last port.
#[repr(C, packed(2))]
pub struct TaskState {
    reserved: u32,
    ring0_stack: u64,
    rest: [u16; 45],
    bitmap_offset: u16,
    bitmap: [u8; BITMAP_PORTS / 8 + 1],
}

const BITMAP_OFFSET: u16 = 104;
const TSS_LIMIT: u64 = BITMAP_OFFSET as u64 + BITMAP_PORTS as u64 / 8;

/// The operand of LGDT.
#[repr(C, packed(2))]
pub struct DescriptorTable {
    limit: u16,
    base: u64,
}

/// The first page of a block.
#[repr(C, align(64))]
pub struct Block {
    gdt: UnsafeCell<[u64; 8]>,
    task_state: UnsafeCell<TaskState>,
    gdt_register: UnsafeCell<DescriptorTable>,
    /// How many exceptions this CPU took: the second is fatal.
    pub faults: AtomicU32,
    /// The exception's vector, error code, address of the instruction, CR2.
    pub fault_vector: AtomicU64,
    /// See [`Self::fault_vector`].
    pub fault_error: AtomicU64,
    /// See [`Self::fault_vector`].
    pub fault_rip: AtomicU64,
    /// See [`Self::fault_vector`].
    pub fault_address: AtomicU64,
    /// The number of the last call this CPU has answered (workload ipi).
    pub call_seen: Isolated,
    /// Index of this CPU among those that MADT lists, and its APIC id; `u32::MAX` until it has arrived.
    pub index: AtomicU32,
    /// See [`Self::index`].
    pub apic_id: AtomicU32,
    /// Its place among the CPUs that came up, which is its worker number.
    pub rank: AtomicU32,
    /// The numbers of its caches, in the order of [`CpuSeen::caches`]; written by the first CPU.
    pub cache_numbers: [AtomicU32; 4],
    /// What the workload counted, see [`Counters`].
    pub counters: Counters,
    /// The time-stamp counter when this CPU began the workload, in the ring it ran in.
    pub began: AtomicU64,
    /// And when it had stopped.
    pub ended: AtomicU64,
    /// What CPUID said on this CPU. Written before the CPU arrives, never after.
    pub seen: UnsafeCell<CpuSeen>,
    /// How long this CPU waited for a lock or an answer.
    pub waits: Histogram,
}

/// A word on a cache line of its own.
#[repr(C, align(64))]
pub struct Isolated(pub AtomicU32);

/// What a worker counts; written once, when its run ends.
#[derive(Default)]
pub struct Counters {
    /// Operations, in the unit of the workload.
    pub operations: AtomicU64,
    /// Writes to the pause port.
    pub port_writes: AtomicU64,
    /// TSC ticks spent spinning.
    pub spin_ticks: AtomicU64,
}

impl Counters {
    /// Stores all three.
    pub fn store(&self, operations: u64, port_writes: u64, spin_ticks: u64) {
        self.operations.store(operations, Ordering::Relaxed);
        self.port_writes.store(port_writes, Ordering::Relaxed);
        self.spin_ticks.store(spin_ticks, Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Block>() <= 0x1c00, "the header must leave 1 KiB for the stack of ring 0");
const _: () = assert!(offset_of!(TaskState, bitmap) == BITMAP_OFFSET as usize);

// SAFETY: the cells are written by one CPU before `index` is published with release ordering (descriptors: before the
// CPU is started), and only read after.
unsafe impl Sync for Block {}

#[repr(C, align(16384))]
struct FirstBlock(UnsafeCell<[u8; BLOCK_BYTES]>);

// SAFETY: only ever seen as a `Block`, through `first`.
unsafe impl Sync for FirstBlock {}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".bss.block")]
static probe_bsp_block: FirstBlock = FirstBlock(UnsafeCell::new([0; BLOCK_BYTES]));

core::arch::global_asm!(
    include_str!("boot.S"),
    include_str!("traps.S"),
    BLOCK_BYTES = const BLOCK_BYTES,
    RING0_STACK_TOP = const RING0_STACK_TOP,
    TSS = const offset_of!(Block, task_state),
    TSS_LIMIT = const TSS_LIMIT,
    GDTR = const offset_of!(Block, gdt_register),
    FAULTS = const offset_of!(Block, faults),
    FAULT_VECTOR = const offset_of!(Block, fault_vector),
    FAULT_ERROR = const offset_of!(Block, fault_error),
    FAULT_RIP = const offset_of!(Block, fault_rip),
    FAULT_ADDRESS = const offset_of!(Block, fault_address),
    CALL_SEEN = const offset_of!(Block, call_seen),
    options(att_syntax)
);

unsafe extern "C" {
    static probe_gdt: [u64; 8];
}

impl Block {
    /// Fills in the descriptors of a CPU that has not been started.
    ///
    /// # Safety
    /// `block` is BLOCK_BYTES of zeroed memory, aligned to that, which nothing else uses.
    pub unsafe fn prepare(block: *mut Self) {
        let address = block as u64;
        let task_state = address + offset_of!(Block, task_state) as u64;
        // SAFETY: the caller hands over the memory; probe_gdt is constant after the first CPU's start.
        unsafe {
            let mut gdt = probe_gdt;
            gdt[6] = tss_descriptor(task_state);
            (*block).gdt.get().write(gdt);
            (*(*block).task_state.get()).ring0_stack = address + RING0_STACK_TOP as u64;
            (*(*block).task_state.get()).bitmap_offset = BITMAP_OFFSET;
            let base = address + offset_of!(Block, gdt) as u64;
            (*block).gdt_register.get().write(DescriptorTable { limit: 63, base });
            (*block).index.store(u32::MAX, Ordering::Relaxed);
            (*block).apic_id.store(u32::MAX, Ordering::Relaxed);
        }
    }
}

/// An available 64-bit TSS below 4 GiB (Intel SDM vol. 3A, figure 8-4).
const fn tss_descriptor(base: u64) -> u64 {
    0x0000_8900_0000_0000 | TSS_LIMIT | (base & 0x00ff_ffff) << 16 | (base >> 24 & 0xff) << 56
}
