// SPDX-License-Identifier: Apache-2.0
//! What pause handling and placement tell each other: who keeps yielding to whom and what that brings, and how many CPUs
//! there are.
//!
//! Invariant: telling costs no vCPU more than the copy of its few counters.

use super::driver::Driver;
use crate::placement::pairs::{PauseHandling, Told};

impl PauseHandling for Driver {
    fn told(&self) -> Vec<Told> {
        let of_seat = |seat: &super::seat::Seat| {
            let partners = seat.partners();
            Told { events: seat.events.get(), finished: partners.finished, yields: partners.counts().collect() }
        };
        self.seats().iter().map(of_seat).collect()
    }

    fn may_use(&self, cpus: u32) {
        self.set_usable_cpus(cpus);
    }
}
