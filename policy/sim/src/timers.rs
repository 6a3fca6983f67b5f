// SPDX-License-Identifier: Apache-2.0
//! When each actor of the model acts next: one time a slot, and the earliest of all in one look.
//!
//! A CPU, a task or a balancer has exactly one next time, so the pending events are an array and not a heap that fills
//! with cancelled ones. Above it stands a tree of winners: setting a time costs one comparison a level.
//!
//! Invariant: of equal times the lowest slot is first, whatever was set in which order.

/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// The next time of every slot.
#[derive(Clone, Debug)]
pub struct Timers {
    /// Number of leaves, a power of two.
    leaves: usize,
    times: Vec<u64>,
    /// `winners[1]` is the earliest slot of all; children of `n` are `2n` and `2n + 1`. Of the last level only the times
    /// exist.
    winners: Vec<u32>,
}

impl Timers {
    /// `slots` slots, none of which acts. At most 2^31 slots, which is far beyond what memory holds.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let leaves = slots.max(2).next_power_of_two();
        let mut winners = vec![0; leaves];
        for node in (1..leaves).rev() {
            let left = if node * 2 >= leaves { node * 2 - leaves } else { winners[node * 2] as usize };
            winners[node] = u32::try_from(left).unwrap_or(u32::MAX);
        }
        Self { leaves, times: vec![NEVER; leaves], winners }
    }

    /// Says when `slot` acts next; [`NEVER`] for not at all.
    #[inline]
    pub fn set(&mut self, slot: usize, time: u64) {
        if self.times[slot] == time {
            return;
        }
        self.times[slot] = time;
        let pair = slot & !1;
        let mut winner = if self.times[pair + 1] < self.times[pair] { pair + 1 } else { pair };
        let mut node = (slot + self.leaves) / 2;
        loop {
            // Slots are dense and few: the cast loses nothing (see `new`).
            #[expect(clippy::cast_possible_truncation, reason = "at most 2^31 slots")]
            let stored = winner as u32;
            self.winners[node] = stored;
            if node == 1 {
                return;
            }
            let other = self.winners[node ^ 1] as usize;
            let is_left = node & 1 == 0;
            let (mine, theirs) = (self.times[winner], self.times[other]);
            if theirs < mine || (theirs == mine && !is_left) {
                winner = other;
            }
            node /= 2;
        }
    }

    /// When `slot` acts next.
    #[must_use]
    pub fn get(&self, slot: usize) -> u64 {
        self.times[slot]
    }

    /// The earliest slot and its time, [`NEVER`] if nobody acts.
    #[inline]
    #[must_use]
    pub fn first(&self) -> (u64, usize) {
        let slot = self.winners[1] as usize;
        (self.times[slot], slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_earliest_and_of_equals_the_lowest(
            slots in 1usize..40, sets in proptest::collection::vec((0usize..40, 0u64..20), 0..200),
        ) {
            let mut timers = Timers::new(slots);
            let mut plain = vec![NEVER; slots];
            for (slot, time) in sets {
                let (slot, time) = (slot % slots, if time == 0 { NEVER } else { time });
                timers.set(slot, time);
                plain[slot] = time;
                let best = (0..slots).min_by_key(|&slot| (plain[slot], slot)).unwrap();
                let first = timers.first();
                prop_assert_eq!(first.0, plain[best]);
                prop_assert!(first.0 == NEVER || first.1 == best);
            }
        }
    }
}
