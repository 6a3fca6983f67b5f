// SPDX-License-Identifier: Apache-2.0
//! One directed yield: the spinner's thread runs its helper vCPU, which names the vCPU that the target's thread runs.
//!
//! Invariant: whatever comes of it, the thread is back after the helper's two exits or a signal.

use std::sync::atomic::Ordering;

use policy::pause::YieldOutcome;
use topology::id::VcpuIndex;

use super::driver::Driver;
use super::yielding::switches;
use crate::kvm::helper_vcpu::{DirectedYield, HelperVcpu};

/// Yields the calling thread, that of `source`, to the thread of `target`. `helper` is the source's; made when there is none.
/// `None` if a signal came first.
pub(super) fn yield_to(
    driver: &Driver,
    source: VcpuIndex,
    helper: &mut Option<HelperVcpu>,
    target: VcpuIndex,
) -> Option<YieldOutcome> {
    let hypercalls = driver.hypercalls();
    if helper.is_none() {
        *helper = hypercalls.make(source);
    }
    let in_helper = driver.seat(target).in_helper.load(Ordering::Relaxed);
    let Some((helper, id)) = helper.as_mut().zip(hypercalls.id_of(target, in_helper)) else {
        return Some(YieldOutcome::NotBoosted);
    };
    let (seat, before) = (driver.seat(source), switches());
    seat.in_helper.store(true, Ordering::Relaxed);
    let done = helper.yield_to(id);
    seat.in_helper.store(false, Ordering::Relaxed);
    // KVM can have favoured the target and the scheduler have picked this thread again all the same.
    let switched = switches() > before;
    match done {
        Ok(DirectedYield::Done | DirectedYield::Unsaid) if switched => Some(YieldOutcome::Boosted),
        Ok(DirectedYield::Done | DirectedYield::Unsaid | DirectedYield::Refused) => Some(YieldOutcome::NotBoosted),
        Ok(DirectedYield::Interrupted) => None,
        Err(error) => {
            hypercalls.note_failed(error);
            Some(YieldOutcome::NotBoosted)
        }
    }
}
