// SPDX-License-Identifier: Apache-2.0
//! Counts accesses that no device claims, per address, in a table of fixed size.
//!
//! The [`crate::bus::Bus`] notes such accesses here on whatever vCPU thread made them. Invariant: the memory is fixed
//! and no access is forgotten: what finds the table full is counted under "elsewhere".

use std::sync::atomic::{AtomicU64, Ordering};

/// Distinct addresses told apart. Linux touches some twenty unclaimed ports while it boots.
const SLOTS: usize = 64;

/// No address: a slot that is free.
const FREE: u64 = u64::MAX;

/// How often an address that no device claims was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnclaimedCount {
    /// The address; none for what did not fit the table.
    pub address: Option<u64>,
    /// Elements read (a string access of n elements counts n).
    pub reads: u64,
    /// Elements written.
    pub writes: u64,
}

#[derive(Debug)]
struct Slot {
    address: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Self { address: AtomicU64::new(FREE), reads: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }

    fn count(&self, address: Option<u64>) -> UnclaimedCount {
        UnclaimedCount {
            address,
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }
}

/// Which way an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The guest read.
    Read,
    /// The guest wrote.
    Write,
}

/// The table. Noting is lock-free; slots are taken in order and never given back.
#[derive(Debug)]
pub(crate) struct UnclaimedTable {
    slots: [Slot; SLOTS],
    elsewhere: Slot,
}

impl UnclaimedTable {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot::new() }; SLOTS], elsewhere: Slot::new() }
    }

    /// Adds `elements` accesses of `address`.
    pub(crate) fn note(&self, address: u64, direction: Direction, elements: u64) {
        let slot = self.slot_of(address);
        let counter = match direction {
            Direction::Read => &slot.reads,
            Direction::Write => &slot.writes,
        };
        // Relaxed: counters are independent of each other and of everything else.
        counter.fetch_add(elements, Ordering::Relaxed);
    }

    /// Every address seen, in ascending order, then what was counted elsewhere, if anything.
    pub(crate) fn counts(&self) -> Vec<UnclaimedCount> {
        let mut counts: Vec<_> = self
            .slots
            .iter()
            .filter_map(|slot| match slot.address.load(Ordering::Relaxed) {
                FREE => None,
                address => Some(slot.count(Some(address))),
            })
            .collect();
        counts.sort_by_key(|count| count.address);
        let elsewhere = self.elsewhere.count(None);
        if elsewhere.reads + elsewhere.writes > 0 {
            counts.push(elsewhere);
        }
        counts
    }

    /// The slot that holds `address`, taking the first free one, or the slot for everything else.
    fn slot_of(&self, address: u64) -> &Slot {
        if address == FREE {
            return &self.elsewhere;
        }
        for slot in &self.slots {
            let mut taken = slot.address.load(Ordering::Relaxed);
            if taken == FREE {
                // Claimed once an address; a locked bus cycle for every slot looked at would cost each access.
                let claim = slot.address.compare_exchange(FREE, address, Ordering::Relaxed, Ordering::Relaxed);
                taken = claim.map_or_else(|other| other, |_| address);
            }
            if taken == address {
                return slot;
            }
        }
        &self.elsewhere
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_per_address_in_ascending_order() {
        let table = UnclaimedTable::new();
        table.note(0xCF8, Direction::Write, 1);
        table.note(0x61, Direction::Read, 3);
        table.note(0xCF8, Direction::Write, 1);
        assert_eq!(
            table.counts(),
            [
                UnclaimedCount { address: Some(0x61), reads: 3, writes: 0 },
                UnclaimedCount { address: Some(0xCF8), reads: 0, writes: 2 },
            ]
        );
    }

    #[test]
    fn what_does_not_fit_is_counted_elsewhere() {
        let table = UnclaimedTable::new();
        for address in 0..SLOTS as u64 + 10 {
            table.note(address, Direction::Read, 1);
        }
        table.note(u64::MAX, Direction::Write, 1);
        let counts = table.counts();
        assert_eq!(counts.len(), SLOTS + 1);
        assert_eq!(counts.last(), Some(&UnclaimedCount { address: None, reads: 10, writes: 1 }));
    }
}
