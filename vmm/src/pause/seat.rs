// SPDX-License-Identifier: Apache-2.0
//! What one vCPU thread shows the others, and what it counts: a cache line or two of atomics.
//!
//! Invariant: every counter has one writer at a time, the vCPU's own thread where nothing else is said, and only grows.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use policy::pause::{Act, Ledger, Reason, YieldOutcome};
use policy::time::Nanos;
use topology::id::HostCpu;

use super::park::Parker;
use super::partners::Partners;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds, without locking the bus: there is no other writer.
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One vCPU's place among the others.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Seat {
    /// How it is woken from a park.
    pub parker: Parker,
    /// What it waits on while it is held off its CPU; nobody wakes it from that.
    pub hold: Parker,
    /// Somebody named it as an owner since it last entered the guest.
    pub named: AtomicBool,
    /// When it last reported, or was last looked at; on the clock of [`super::clock`].
    heard_ns: AtomicU64,
    /// The CPU it was on then, plus one; 0 if that is not known.
    heard_on: AtomicU32,
    /// Until when it is to be held off its CPU; 0 for no hold.
    pub hold_until_ns: AtomicU64,
    /// It is being held off its CPU.
    pub held: AtomicBool,
    /// Its thread runs its helper vCPU.
    pub in_helper: AtomicBool,
    /// The sampler wants it to look at what it executes.
    pub look_due: AtomicBool,
    /// PAUSE exits that the kernel counted, known when the thread has ended.
    pub pause_exits: Count,
    /// Its thread id; 0 before the thread runs and after it has ended.
    pub tid: AtomicI32,
    /// Times it entered the guest.
    pub entries: Count,
    /// Pause events it reported.
    pub events: Count,
    /// Of these, how many came while it had been told that nobody can be helped, and were let pass without a decision.
    pub quiet: Count,
    /// Events forced by the tracepoint.
    pub forced: Count,
    /// Forced exits that found the kernel's own yields to work, and were left at that.
    pub left_to_kernel: Count,
    /// Times its own acts about pause loops switched its thread.
    pub own_switches: Count,
    /// Times it was looked at by the sampler.
    pub sampled: Count,
    /// Actions by what came of them.
    pub outcomes: [Count; YieldOutcome::ALL.len()],
    /// Decisions of the policy to go on spinning.
    pub spins: Count,
    /// Bail-outs by reason.
    pub bailed: [Count; Reason::ALL.len()],
    /// CPU time it gave to others, in nanoseconds; written under the driver's lock.
    pub donated_ns: AtomicU64,
    /// CPU time it got from others, in nanoseconds; likewise.
    pub received_ns: AtomicU64,
    /// Parks.
    pub parks: Count,
    /// Time parked, in nanoseconds.
    pub parked_ns: Count,
    /// Time between a yield and the thread's next turn, in nanoseconds.
    pub yielded_ns: Count,
    /// Holds, and their time in nanoseconds.
    pub holds: Count,
    /// See [`Seat::holds`].
    pub held_ns: Count,
    partners: Mutex<Partners>,
}

impl Seat {
    /// It reported now, or was looked at, and was on `cpu`.
    pub(super) fn heard(&self, cpu: Option<HostCpu>, now: Nanos) {
        self.heard_ns.store(now.0, Ordering::Relaxed);
        self.heard_on.store(cpu.map_or(0, |cpu| cpu.0.wrapping_add(1)), Ordering::Relaxed);
    }

    /// When it was last heard of.
    pub(super) fn heard_at(&self) -> Nanos {
        Nanos(self.heard_ns.load(Ordering::Relaxed))
    }

    /// Whether it was on `cpu` then; not if either is unknown.
    pub(super) fn was_on(&self, cpu: Option<HostCpu>) -> bool {
        cpu.is_some_and(|cpu| self.heard_on.load(Ordering::Relaxed) == cpu.0.wrapping_add(1))
    }

    /// Shows what the vCPU's thread has counted. Where somebody reads at this moment the thread does not wait: it shows that
    /// with what it counts next.
    pub fn show(&self, partners: &Partners) {
        match self.partners.try_lock() {
            Ok(mut shown) => shown.copy(partners),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().copy(partners),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// To whom it has yielded, and what it told of its waits.
    #[must_use]
    pub fn partners(&self) -> Partners {
        // A thread that panics aborts the process; a poisoned lock cannot be seen.
        self.partners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts what came of an action.
    pub fn count(&self, outcome: YieldOutcome) {
        self.outcomes[outcome.index()].add(1);
    }

    /// Counts a decision of the policy about its event.
    pub(super) fn count_decision(&self, act: Act) {
        match act {
            Act::Spin => self.spins.add(1),
            Act::Bail(reason) => self.bailed[reason.index()].add(1),
            Act::YieldTo { .. } | Act::Yield | Act::Park { .. } => {}
        }
    }

    /// Shows what it gave and got, as the policy has it.
    pub(super) fn book(&self, ledger: Option<&Ledger>) {
        if let Some(ledger) = ledger {
            self.donated_ns.store(ledger.donated_ns, Ordering::Relaxed);
            self.received_ns.store(ledger.received_ns, Ordering::Relaxed);
        }
    }

    /// The names of the reasons with their counts, those that never happened left out.
    pub fn bailed(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = Reason::ALL.iter().map(|reason| (reason.name(), self.bailed[reason.index()].get()));
        counts.filter(|(_, count)| *count > 0)
    }
}
