// SPDX-License-Identifier: Apache-2.0
//! A lock handed from CPU to CPU in order, so that the owner is always known and every count is exact.
//!
//! Every `size` CPUs are a ring with a lock of their own, which is the rank of its owner. An operation is a hand-over.
//! Invariant: only the owner writes the lock.

use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::block::{Block, Isolated};
use crate::command_line::Workload;
use crate::memory::Arena;
use crate::pause_port::UNKNOWN_OWNER;
use crate::workload::{Plan, stopped};

/// The locks of all rings, each with its first CPU; none for another workload. `None` if there is no memory for them.
pub(super) fn locks(workload: Workload, workers: u32, size: NonZeroU32, arena: &mut Arena) -> Option<&'static [Isolated]> {
    if workload != Workload::Ring {
        return Some(&[]);
    }
    let rings = workers.div_ceil(size.get()) as usize;
    let locks = arena.slice(rings, |ring| Isolated(AtomicU32::new((ring as u32).wrapping_mul(size.get()))))?;
    Some(locks)
}

#[unsafe(link_section = ".text.hot.ring")]
#[inline(never)]
pub(super) fn work(plan: &Plan, block: &Block) {
    let me = block.rank.load(Ordering::Relaxed);
    // Not zero by its type: a check here would be a call that a hot loop must not make.
    let ring = me / plan.ring_size;
    let first = ring * plan.ring_size.get();
    let next = if me + 1 == plan.workers || me + 1 - first == plan.ring_size.get() { first } else { me + 1 };
    let Some(Isolated(lock)) = plan.rings.get(ring as usize) else { return };
    let mut spinner = plan.spinner();
    let mut hand_overs = 0_u64;
    'run: loop {
        spinner.begin();
        loop {
            let owner = lock.load(Ordering::Acquire);
            if owner == me {
                break;
            }
            let apic_id = || plan.apic_ids.get(owner as usize).copied().unwrap_or(UNKNOWN_OWNER);
            if spinner.spin(apic_id) && stopped() {
                break 'run;
            }
        }
        if stopped() {
            break;
        }
        hand_overs += 1;
        lock.store(next, Ordering::Release);
    }
    block.counters.store(hand_overs, spinner.writes, 0);
}
