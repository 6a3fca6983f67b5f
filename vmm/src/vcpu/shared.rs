// SPDX-License-Identifier: Apache-2.0
//! What a vCPU thread shares with those who hold, ask or watch it.

use std::os::unix::thread::RawPthread;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use super::control::{Mailbox, State};
use super::counters::ExitCounters;
use crate::kvm::stats::{Stats, StatsError};
use crate::ledger::Measured;
use crate::ledger::meter::Meter;

/// What a vCPU thread shares with the rest of the monitor.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) exits: ExitCounters,
    pub(super) meter: Meter,
    pub(super) tid: AtomicI32,
    /// The thread while it may be named so: from its start until it is joined or left behind.
    pub(super) pthread: Mutex<Option<RawPthread>>,
    pub(super) first_run: OnceLock<Instant>,
}

impl Shared {
    pub(super) fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Ordering::Acquire)).filter(|tid| *tid != 0)
    }

    pub(super) fn state(&self) -> State {
        self.mailbox.state()
    }

    /// What was measured, with what KVM itself counts. KVM books a halt when it ends: while one lasts (`blocking`), what
    /// it booked is too little, and sleep is taken for halted as if KVM did not tell.
    pub(super) fn with_kvm(measured: Measured, stats: Result<&Stats, &StatsError>) -> Measured {
        let reading = stats.ok().and_then(|stats| stats.read().ok());
        let get = |name: &str| reading.as_ref().and_then(|reading| reading.get_ns(name));
        let polled = get("halt_poll_success_ns").zip(get("halt_poll_fail_ns"));
        let polled_ns = polled.map(|(success, fail)| success.saturating_add(fail));
        let halted_now = reading.as_ref().and_then(|reading| reading.get("blocking")) == Some(1);
        Measured { halt_wait_ns: get("halt_wait_ns").filter(|_| !halted_now), polled_ns, ..measured }
    }
}
