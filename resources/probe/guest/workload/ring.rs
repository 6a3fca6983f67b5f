// SPDX-License-Identifier: Apache-2.0
//! A lock handed from CPU to CPU in order, so that the owner is always known and every count is exact.
//!
//! The lock is the rank of its owner. An operation is a hand-over. Invariant: only the owner writes the lock.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::block::{Block, Isolated};
use crate::pause_port::UNKNOWN_OWNER;
use crate::workload::{Plan, stopped};

static OWNER: Isolated = Isolated(AtomicU32::new(0));

pub(super) fn prepare(_plan: &Plan) {
    OWNER.0.store(0, Ordering::Relaxed);
}

#[unsafe(link_section = ".text.hot.ring")]
#[inline(never)]
pub(super) fn work(plan: &Plan, block: &Block) {
    let me = block.rank.load(Ordering::Relaxed);
    let next = if me + 1 == plan.workers { 0 } else { me + 1 };
    let mut spinner = plan.spinner();
    let mut hand_overs = 0_u64;
    'run: loop {
        spinner.begin();
        loop {
            let owner = OWNER.0.load(Ordering::Acquire);
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
        OWNER.0.store(next, Ordering::Release);
    }
    block.counters.store(hand_overs, spinner.writes, 0);
}
