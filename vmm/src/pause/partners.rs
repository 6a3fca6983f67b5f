// SPDX-License-Identifier: Apache-2.0
//! To whom one vCPU has yielded, and what it has told of its waits. Pure.
//!
//! Counted on the vCPU's own thread, which shows it to whoever wants to know who keeps waiting for whom: placement, and the
//! control API. Invariant: bounded, however many vCPUs there are: exact for up to [`MOST`] partners, and with more the rare
//! ones give way to the frequent (Misra and Gries, "Finding repeated elements", 1982).

use topology::id::VcpuIndex;

/// Partners that are remembered.
const MOST: usize = 32;
/// Misses of others that a partner outlasts, however often it was counted.
const TENURE: u32 = 1024;

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partners {
    slots: Vec<Slot>,
    /// Waits that came to their end; `None` as long as the guest has not counted any.
    pub finished: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    target: VcpuIndex,
    count: u64,
    tenure: u32,
}

impl Partners {
    /// Becomes what `other` is, in the room that it has.
    pub fn copy(&mut self, other: &Self) {
        self.slots.clone_from(&other.slots);
        self.finished = other.finished;
    }

    /// Counts an act in favour of `target`.
    pub fn yielded_to(&mut self, target: VcpuIndex) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.target == target) {
            slot.count += 1;
            slot.tenure = (slot.tenure + 1).min(TENURE);
            return;
        }
        if self.slots.len() == MOST {
            self.slots.iter_mut().for_each(|slot| slot.tenure -= 1);
            self.slots.retain(|slot| slot.tenure > 0);
        }
        if self.slots.len() < MOST {
            self.slots.push(Slot { target, count: 1, tenure: 1 });
        }
    }

    /// Takes in how many waits have ended since the last report.
    pub fn finished(&mut self, waits: u32) {
        self.finished = Some(self.finished.unwrap_or(0).saturating_add(waits.into()));
    }

    /// Everybody who is remembered, with how often; the counts only grow, unless somebody is forgotten and comes anew.
    pub fn counts(&self) -> impl Iterator<Item = (VcpuIndex, u64)> + '_ {
        self.slots.iter().map(|slot| (slot.target, slot.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_partners_are_counted_exactly() {
        let mut partners = Partners::default();
        for target in [3, 1, 3, 3] {
            partners.yielded_to(VcpuIndex(target));
        }
        assert_eq!(partners.counts().collect::<Vec<_>>(), [(VcpuIndex(3), 3), (VcpuIndex(1), 1)]);
    }

    #[test]
    fn new_frequent_partners_come_in_however_frequent_the_old_ones_were() {
        let mut partners = Partners::default();
        for turn in 0..100_000 {
            partners.yielded_to(VcpuIndex(turn % 32));
        }
        for turn in 0..5_000 {
            partners.yielded_to(VcpuIndex(100 + turn % 2));
        }
        let count = |vcpu| partners.counts().find(|(target, _)| *target == VcpuIndex(vcpu)).map(|(_, count)| count);
        assert!(count(100) > Some(1_000) && count(101) > Some(1_000), "{partners:?}");
        assert!(partners.counts().count() <= MOST);
    }

    #[test]
    fn a_copy_is_what_it_was_made_from() {
        let (mut partners, mut shown) = (Partners::default(), Partners::default());
        shown.yielded_to(VcpuIndex(9));
        partners.yielded_to(VcpuIndex(3));
        partners.finished(2);
        shown.copy(&partners);
        assert_eq!(shown, partners);
    }

    #[test]
    fn waits_are_summed_once_the_guest_counts_them() {
        let mut partners = Partners::default();
        assert_eq!(partners.finished, None);
        partners.finished(0);
        partners.finished(7);
        assert_eq!(partners.finished, Some(7));
    }
}
