// SPDX-License-Identifier: Apache-2.0
//! What a vCPU has counted of its pause loops, as the report and the control API tell it.

use std::sync::atomic::Ordering;

use api::wire::{PauseCounters, Yields};
use policy::pause::YieldOutcome;

use super::seat::Seat;

impl From<&Seat> for PauseCounters {
    fn from(seat: &Seat) -> Self {
        let outcome = |which: YieldOutcome| seat.outcomes[which.index()].get();
        Self {
            events: seat.events.get(),
            quiet: seat.quiet.get(),
            forced: seat.forced.get(),
            left_to_kernel: seat.left_to_kernel.get(),
            pause_exits: seat.pause_exits.get(),
            sampled: seat.sampled.get(),
            spins: seat.spins.get(),
            yields: Yields {
                attempted: YieldOutcome::ALL.iter().map(|which| outcome(*which)).sum(),
                boosted: outcome(YieldOutcome::Boosted),
                not_boosted: outcome(YieldOutcome::NotBoosted),
                nobody_waiting: outcome(YieldOutcome::NobodyWaiting),
            },
            bailed: seat.bailed().map(|(reason, count)| (reason.to_owned(), count)).collect(),
            parks: seat.parks.get(),
            parked_ns: seat.parked_ns.get(),
            yielded_ns: seat.yielded_ns.get(),
            donated_ns: seat.donated_ns.load(Ordering::Relaxed),
            received_ns: seat.received_ns.load(Ordering::Relaxed),
            holds: seat.holds.get(),
            held_ns: seat.held_ns.get(),
        }
    }
}
