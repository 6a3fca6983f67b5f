// SPDX-License-Identifier: Apache-2.0
//! All CPUs contend for a ticket lock: fair, and therefore the worst there is when a waiter in the queue is off CPU.
//!
//! An operation is an acquisition. Invariant: a ticket that is taken is used, also after the time is up, or those
//! behind it would wait for ever; acquisitions after the end are not counted.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::block::{Block, Isolated};
use crate::hardware::tsc;
use crate::pause_port::UNKNOWN_OWNER;
use crate::workload::{Plan, busy, stopped};

static NEXT: Isolated = Isolated(AtomicU32::new(0));
static SERVING: Isolated = Isolated(AtomicU32::new(0));
/// APIC id of the holder: what the port is told.
static HOLDER: Isolated = Isolated(AtomicU32::new(UNKNOWN_OWNER));

#[unsafe(link_section = ".text.hot.ticket")]
#[inline(never)]
pub(super) fn work(plan: &Plan, block: &Block) {
    let me = block.apic_id.load(Ordering::Relaxed);
    let mut spinner = plan.spinner();
    let (mut acquisitions, mut spin_ticks) = (0_u64, 0_u64);
    while !stopped() {
        busy(plan.think);
        let asked = tsc();
        let ticket = NEXT.0.fetch_add(1, Ordering::Relaxed);
        spinner.begin();
        let mut waited = false;
        while SERVING.0.load(Ordering::Acquire) != ticket {
            waited = true;
            spinner.spin(|| HOLDER.0.load(Ordering::Relaxed));
        }
        let wait = tsc() - asked;
        HOLDER.0.store(me, Ordering::Relaxed);
        if !stopped() {
            acquisitions += 1;
            block.waits.record(wait);
            spin_ticks += if waited { wait } else { 0 };
        }
        busy(plan.hold);
        HOLDER.0.store(UNKNOWN_OWNER, Ordering::Relaxed);
        SERVING.0.store(ticket.wrapping_add(1), Ordering::Release);
    }
    block.counters.store(acquisitions, spinner.writes, spin_ticks);
}
