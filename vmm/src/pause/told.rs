// SPDX-License-Identifier: Apache-2.0
//! What pause handling tells placement: who keeps yielding to whom, and what that brings.
//!
//! Invariant: telling costs no vCPU more than the copy of its few counters.

use super::driver::Driver;
use crate::placement::pairs::{Told, YieldCounts};

impl YieldCounts for Driver {
    fn told(&self) -> Vec<Told> {
        let of_seat = |seat: &super::seat::Seat| {
            let partners = seat.partners();
            Told { events: seat.events.get(), finished: partners.finished, yields: partners.counts().collect() }
        };
        self.seats().iter().map(of_seat).collect()
    }
}
