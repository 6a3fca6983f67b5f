// SPDX-License-Identifier: Apache-2.0
//! Every CPU counts until the time is up: the cost of a CPU that does nothing but run.

use crate::block::Block;
use crate::workload::stopped;

#[unsafe(link_section = ".text.hot.spin")]
#[inline(never)]
pub(super) fn work(block: &Block) {
    let mut iterations = 0_u64;
    while !stopped() {
        iterations += 1;
    }
    block.counters.store(iterations, 0, 0);
}
