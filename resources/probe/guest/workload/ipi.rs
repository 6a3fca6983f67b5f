// SPDX-License-Identifier: Apache-2.0
//! The first CPU interrupts all others and waits for every answer, as a TLB shootdown does; the others compute.
//!
//! An operation of the first CPU is a round; the others count what they computed but that is not reported as
//! operations. Invariant: a round is finished before the next begins, so that a CPU's answer is a number of a round.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::apic;
use crate::block::Block;
use crate::command_line::Send;
use crate::hardware::tsc;
use crate::smp;
use crate::workload::{Plan, stopped};

unsafe extern "C" {
    static probe_call_sequence: AtomicU32;
}

#[unsafe(link_section = ".text.hot.ipi")]
#[inline(never)]
pub(super) fn work(plan: &Plan, block: &'static Block) {
    if block.rank.load(Ordering::Relaxed) == 0 {
        initiate(plan, block);
    } else {
        while !stopped() {
            core::hint::black_box(block);
        }
        block.counters.store(0, 0, 0);
    }
}

#[unsafe(link_section = ".text.hot.ipi")]
#[inline(never)]
fn initiate(plan: &Plan, first: &'static Block) {
    // SAFETY: a word of traps.S, only ever accessed as an atomic.
    let sequence = unsafe { &probe_call_sequence };
    let others = || smp::present().filter(|block| !core::ptr::eq(*block, first));
    let mut spinner = plan.spinner();
    let (mut rounds, mut spin_ticks) = (0_u64, 0_u64);
    while !stopped() && plan.workers > 1 {
        let round = sequence.load(Ordering::Relaxed).wrapping_add(1);
        sequence.store(round, Ordering::Release);
        let sent = tsc();
        match plan.send {
            Send::Broadcast => apic::send_to_others(apic::VECTOR_CALL),
            Send::Each => {
                for block in others() {
                    apic::send(block.apic_id.load(Ordering::Relaxed), apic::VECTOR_CALL);
                }
            }
        }
        let waiting = tsc();
        for block in others() {
            spinner.begin();
            while block.call_seen.0.load(Ordering::Acquire) != round {
                spinner.spin(|| block.apic_id.load(Ordering::Relaxed));
            }
        }
        let answered = tsc();
        if stopped() {
            break;
        }
        first.waits.record(answered - sent);
        spin_ticks += answered - waiting;
        rounds += 1;
    }
    first.counters.store(rounds, spinner.writes, spin_ticks);
}
