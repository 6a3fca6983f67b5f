// SPDX-License-Identifier: Apache-2.0
//! Pairs of vCPUs that keep yielding to each other: from what the pause policy decides to
//! [`policy::placement::Pairing`], as the monitor counts them on a live host.
//!
//! Invariant: without a pause policy and a balancer nothing is counted and no pair is asked for.

use std::collections::BTreeMap;

use policy::pause::{Decision, PauseEvent};
use policy::placement::{Decision as Move, Pair, Pairing, Waits, Yielded};
use policy::time::Nanos;
use topology::id::{HostCpu, VcpuIndex};

use super::world::World;

/// What was counted since the last look, and what is made of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) pairing: Pairing,
    yields: BTreeMap<(VcpuIndex, VcpuIndex), u64>,
    waits: Vec<Waits>,
}

impl Pairs {
    /// Counts one pause event of a VM with `vcpus` vCPUs.
    pub(crate) fn count(&mut self, vcpus: usize, event: &PauseEvent, decision: &Decision) {
        self.waits.resize(vcpus, Waits::default());
        if let Some(told) = self.waits.get_mut(event.source.index()) {
            told.events += 1;
            if let Some(finished) = event.progress {
                told.finished = Some(told.finished.unwrap_or(0) + u64::from(finished));
            }
        }
        if let Some(target) = decision.target() {
            *self.yields.entry((event.source, target)).or_insert(0) += 1;
        }
    }

    /// What the next pass should do, given where every vCPU is.
    fn wishes(&mut self, now: Nanos, places: &[HostCpu]) -> Vec<Pair> {
        let yielded = |((source, target), count)| Yielded { source, target, count };
        let yielded: Vec<Yielded> = std::mem::take(&mut self.yields).into_iter().map(yielded).collect();
        self.waits.resize(places.len(), Waits::default());
        let wishes = self.pairing.look(now, places, &yielded, &self.waits);
        // Who has counted once goes on counting.
        for told in &mut self.waits {
            *told = Waits { events: 0, finished: told.finished.map(|_| 0) };
        }
        wishes
    }
}

impl World {
    /// The pairs that the next pass over a VM should bring together or take apart.
    pub(crate) fn wished_pairs(&mut self, vm: usize) -> Vec<Pair> {
        let cpus = self.host.topology.cpus();
        let machine = &mut self.vms[vm];
        let places: Vec<HostCpu> = machine.places.iter().map(|&cpu| cpus[cpu].id).collect();
        machine.pairs.wishes(Nanos(self.now), &places)
    }

    /// Tells what became of them.
    pub(crate) fn pairs_done(&mut self, vm: usize, moves: &[Move]) {
        self.vms[vm].pairs.pairing.done(moves, Nanos(self.now));
    }
}
