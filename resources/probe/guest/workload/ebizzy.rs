// SPDX-License-Identifier: Apache-2.0
//! CPUs allocate a block, copy records into it, search it, and free it, under one allocator lock, after ebizzy.
//!
//! An operation is a record found. The allocator is a stack of free blocks behind a test-and-set lock whose word names
//! its holder. Invariant: only the holder of the lock touches the stack; there are twice as many blocks as workers.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::block::{Block, Isolated};
use crate::hardware::tsc;
use crate::memory::Arena;
use crate::pause_port::Spinner;
use crate::workload::{Plan, busy, stopped};

/// The memory of the workload.
pub struct Heap {
    /// The records that blocks are copies of: even numbers in order.
    records: &'static [u32],
    blocks: NonNull<u32>,
    block_words: usize,
    free: &'static [UnsafeCell<u32>],
    free_len: UnsafeCell<usize>,
}

/// 0, or one more than the APIC id of the holder.
static LOCK: Isolated = Isolated(AtomicU32::new(0));

impl Heap {
    /// No memory, for other workloads.
    pub const fn none() -> Self {
        Self { records: &[], blocks: NonNull::dangling(), block_words: 0, free: &[], free_len: UnsafeCell::new(0) }
    }

    /// Two blocks of `block_bytes` for every worker; `None` if there is not that much memory.
    pub fn new(workers: usize, block_bytes: u32, arena: &mut Arena) -> Option<Self> {
        let block_words = block_bytes as usize / 4;
        let count = 2 * workers;
        Some(Self {
            records: arena.slice(block_words, |i| 2 * i as u32)?,
            blocks: arena.take(count.checked_mul(block_words * 4)?, 64)?.cast(),
            block_words,
            free: arena.slice(count, |i| UnsafeCell::new(i as u32))?,
            free_len: UnsafeCell::new(count),
        })
    }

    /// Takes a free block. The caller holds the lock.
    #[inline(always)]
    fn pop(&self) -> Option<u32> {
        // SAFETY: the holder of the lock is alone here.
        let len = unsafe { &mut *self.free_len.get() };
        *len = len.checked_sub(1)?;
        // SAFETY: as above.
        self.free.get(*len).map(|slot| unsafe { *slot.get() })
    }

    /// Gives a block back. The caller holds the lock.
    #[inline(always)]
    fn push(&self, block: u32) {
        // SAFETY: the holder of the lock is alone here.
        unsafe {
            let len = &mut *self.free_len.get();
            if let Some(slot) = self.free.get(*len) {
                *slot.get() = block;
                *len += 1;
            }
        }
    }

    /// Copies the records into a block that the caller has taken.
    #[inline(always)]
    fn fill(&self, block: u32) -> &[u32] {
        // SAFETY: block numbers are those of `new`, so the block lies within `blocks`; whoever popped it owns it.
        unsafe {
            let start = self.blocks.add(block as usize * self.block_words).as_ptr();
            core::ptr::copy_nonoverlapping(self.records.as_ptr(), start, self.block_words);
            core::slice::from_raw_parts(start, self.block_words)
        }
    }
}

/// What one worker counts.
struct Tally<'a> {
    spinner: Spinner,
    spin_ticks: u64,
    block: &'a Block,
}

impl Tally<'_> {
    #[inline(always)]
    fn lock(&mut self, me: u32) {
        let asked = tsc();
        self.spinner.begin();
        let mut waited = false;
        while LOCK.0.compare_exchange_weak(0, me + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            waited = true;
            // Only look until it is free: writing would take the line from the holder.
            while LOCK.0.load(Ordering::Relaxed) != 0 {
                self.spinner.spin(|| LOCK.0.load(Ordering::Relaxed).wrapping_sub(1));
            }
        }
        let wait = tsc() - asked;
        self.block.waits.record(wait);
        self.spin_ticks += if waited { wait } else { 0 };
    }
}

#[inline(always)]
fn unlock() {
    LOCK.0.store(0, Ordering::Release);
}

#[unsafe(link_section = ".text.hot.ebizzy")]
#[inline(never)]
pub(super) fn work(plan: &Plan, block: &Block) {
    let me = block.apic_id.load(Ordering::Relaxed);
    let mut tally = Tally { spinner: plan.spinner(), spin_ticks: 0, block };
    let mut records = 0_u64;
    // Any odd multiplier of full period will do: the searches only have to differ.
    let mut key = me;
    while !stopped() {
        tally.lock(me);
        busy(plan.hold);
        let taken = plan.heap.pop();
        unlock();
        let Some(taken) = taken else { continue };
        key = key.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        records += u64::from(search(plan.heap.fill(taken), key));
        tally.lock(me);
        plan.heap.push(taken);
        unlock();
        busy(plan.think);
    }
    block.counters.store(records, tally.spinner.writes, tally.spin_ticks);
}

/// Binary search for a record that is there; 1 if it was found.
#[inline(always)]
fn search(sorted: &[u32], key: u32) -> u32 {
    let wanted = 2 * key.checked_rem(sorted.len() as u32).unwrap_or(0);
    let (mut low, mut high) = (0, sorted.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match sorted.get(middle) {
            Some(record) if *record < wanted => low = middle + 1,
            _ => high = middle,
        }
    }
    u32::from(sorted.get(low) == Some(&wanted))
}
