// SPDX-License-Identifier: Apache-2.0
//! CPUs that are not equal: who may take work from whom (seed asym-packing).
//!
//! Invariant: without a rule for unequal CPUs nothing here ever finds anything.

use super::world::World;
use crate::host::AsymRule;

impl World {
    /// The CPUs among which the rule for unequal CPUs speaks.
    fn asym_group(&self, cpu: usize) -> &[usize] {
        if self.params.asym_in_core { self.host.cores.group(cpu) } else { self.host.nodes.group(cpu) }
    }

    /// Before 4.7 the order of CPUs came before their load, whether the one that pulls was idle or not: the first waiting
    /// task that may move, and where it waits.
    pub(crate) fn first_by_number(&self, cpu: usize, cool: &dyn Fn(&u32) -> bool) -> Option<(usize, u32)> {
        if self.params.asym != AsymRule::First {
            return None;
        }
        let behind = self.asym_group(cpu).iter().copied().filter(|&other| other > cpu);
        behind.filter_map(|other| Some((other, *self.cpus[other].queue.waiting.iter().find(|task| cool(task))?))).next()
    }

    /// An idle CPU that ranks higher takes a running task (active balance), by the rule in force.
    pub(crate) fn pull_preferred(&mut self, cpu: usize) {
        let rank = self.host.ranks[cpu];
        let lower = |&other: &usize| {
            let one = &self.cpus[other];
            self.host.ranks[other] < rank
                && one.segment.in_guest()
                && one.current.is_some_and(|task| self.may_run(task as usize, cpu))
        };
        let mut candidates = self.asym_group(cpu).iter().copied().filter(lower);
        let from = match self.params.asym {
            AsymRule::Off => None,
            AsymRule::First => candidates.next(),
            AsymRule::LeastPreferred => candidates.min_by_key(|&other| (self.host.ranks[other], other)),
        };
        let Some(from) = from else { return };
        self.leave_guest(from);
        let Some(task) = self.cpus[from].current else { return };
        self.put_back(from, "pulled");
        self.migrate(task, from, cpu);
        self.schedule(from, 0);
    }
}
