// SPDX-License-Identifier: Apache-2.0
//! Which mechanism to use, learnt from what it brought: a race between tactics, measured in progress per second.
//!
//! No mechanism wins everywhere (design 5.4: parking is three times as good as yielding with 8 vCPUs on one CPU, and a
//! fifth worse with 8 on two), and the reasons lie in the host kernel. So the policy tries and measures. One tactic is
//! kept for a stretch of epochs, then another is tried for one epoch; it replaces the present one when it brings more
//! by the hysteresis. A trial that is hopeless ends after half its epoch, and each lost trial makes the tactic
//! wait longer for its next one, so that the price of knowing falls with time.
//!
//! Invariant: integer arithmetic on arguments only; the same observations give the same tactic.

use std::mem;

use super::config::PauseConfig;
use crate::time::Nanos;

/// What is done with a spinner once it is clear that somebody could be helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tactic {
    /// Go on spinning; wake the named owner if it is parked.
    Spin,
    /// Yield the CPU; wake the named owner first if it is parked.
    Yield,
    /// Wake the target and block.
    Park,
}

impl Tactic {
    const ALL: [Self; 3] = [Self::Spin, Self::Yield, Self::Park];
    const COUNT: usize = Self::ALL.len();
}

/// vCPUs for each CPU from which on parking is the first tactic.
pub(crate) const MANY_PER_CPU: usize = 4;

/// The tactics that may be used at all, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    mask: u8,
    first: Tactic,
}

impl Allowed {
    /// What the granted mechanisms and the number of CPUs leave; never nothing.
    pub(crate) fn new(config: &PauseConfig, vcpus: usize, usable_cpus: u32) -> Self {
        let mechanisms = config.mechanisms;
        let yields = mechanisms.sched_yield || mechanisms.hypercall;
        let acts = yields || mechanisms.park;
        let one_cpu = usable_cpus == 1;
        let bit = |tactic: Tactic, granted: bool| u8::from(granted) << tactic as u8;
        // On one CPU nobody else runs while the source spins: not worth a trial.
        let mask =
            bit(Tactic::Spin, !(one_cpu && acts)) | bit(Tactic::Yield, yields) | bit(Tactic::Park, mechanisms.park);
        // With a CPU for each vCPU spinning wins, with one for all or for many parking, between the two yielding
        // (docs/pause-loops.md: on two CPUs, yielding makes twice the hand-overs of parking with 4 vCPUs, three quarters
        // with 8, a third with 16).
        let many = vcpus >= MANY_PER_CPU.saturating_mul(usable_cpus as usize);
        let first = match (vcpus <= usable_cpus as usize, mechanisms.park && (one_cpu || many || !yields), yields) {
            (true, _, _) if !(one_cpu && acts) => Tactic::Spin,
            (_, true, _) => Tactic::Park,
            (_, _, true) => Tactic::Yield,
            (_, _, false) => Tactic::Spin,
        };
        Self { mask, first }
    }

    const fn contains(self, tactic: Tactic) -> bool {
        self.mask >> tactic as u8 & 1 == 1
    }
}

/// What is known of one tactic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    /// Progress per second, as last measured; `None` if never.
    rate: Option<u64>,
    /// Trials that pass this tactic over after it has lost once more.
    patience: u16,
    /// How many of them are left.
    wait: u16,
}

/// The race between tactics in one kind of situation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learner {
    records: [Record; Tactic::COUNT],
    incumbent: Tactic,
    /// The tactic on trial, if one is.
    trial: Option<Tactic>,
    /// The trial went well, and is measured again for longer before it counts.
    confirming: bool,
    started: bool,
    epoch_start: Nanos,
    gained: u64,
    epochs_left: u32,
    /// Length of the present stretch.
    stretch: u32,
    next_trial: u8,
}

impl Default for Learner {
    fn default() -> Self {
        Self {
            records: [Record::default(); Tactic::COUNT],
            incumbent: Tactic::Spin,
            trial: None,
            confirming: false,
            started: false,
            epoch_start: Nanos(0),
            gained: 0,
            epochs_left: FIRST_STRETCH,
            stretch: FIRST_STRETCH,
            next_trial: 0,
        }
    }
}

/// An epoch this many times longer than meant measured a pause in the guest's work, not a tactic.
const STALE_EPOCHS: u64 = 8;
/// Epochs before the first trial, and again after each change: vCPUs start one after another, and the first measure of
/// a tactic may be of something else. Each quiet stretch doubles the next, up to the configured length.
const FIRST_STRETCH: u32 = 4;
/// After a change of tactic this part of an epoch passes unmeasured: parks of the old tactic still run out.
const SETTLE_DIVISOR: u64 = 4;
/// A trial is hopeless after half its epoch when it brings less than this part of the incumbent. Not more: a parked
/// vCPU whose CPU a foreign task took waits up to a slice (3 ms), which says little about parking.
const HOPELESS_DIVISOR: u64 = 16;
/// A trial that brings at least half is measured again, from scratch and this many times longer: 80 hand-overs are too
/// few to tell 20 % apart, and yielding shines for the first rounds after parking has put the vCPUs in order.
const CONFIRM_EPOCHS: u64 = 4;
/// Upper bounds of [`Record::patience`] for a tactic that came close and for one that did not bring half.
const PATIENCE: (u16, u16) = (32, 256);

impl Learner {
    /// The tactic to use at `now`, after `gained` more progress was seen.
    pub(crate) fn observe(&mut self, gained: u32, allowed: Allowed, config: &PauseConfig, now: Nanos) -> Tactic {
        if !self.started || !allowed.contains(self.current()) {
            *self = Self { started: true, incumbent: allowed.first, ..Self::default() };
            self.restart(now, config);
        }
        if now.is_before(self.epoch_start) {
            return self.current();
        }
        self.gained = self.gained.saturating_add(gained.into());
        let elapsed = now.since(self.epoch_start);
        let length = self.epoch_length(config);
        if elapsed > length * STALE_EPOCHS {
            self.restart(now, config);
        } else if elapsed >= length || self.is_hopeless(elapsed, config) {
            self.close(rate(self.gained, elapsed), allowed, config);
            self.restart(now, config);
        }
        self.current()
    }

    /// The tactic in use.
    pub(crate) fn current(&self) -> Tactic {
        self.trial.unwrap_or(self.incumbent)
    }

    fn record(&mut self, tactic: Tactic) -> &mut Record {
        &mut self.records[tactic as usize]
    }

    fn rate_of(&self, tactic: Tactic) -> Option<u64> {
        self.records[tactic as usize].rate
    }

    fn restart(&mut self, now: Nanos, config: &PauseConfig) {
        let settle = if self.trial.is_some() && !self.confirming { config.epoch_ns / SETTLE_DIVISOR } else { 0 };
        self.epoch_start = now.after(settle);
        self.gained = 0;
    }

    fn epoch_length(&self, config: &PauseConfig) -> u64 {
        config.epoch_ns * if self.confirming { CONFIRM_EPOCHS } else { 1 }
    }

    fn is_hopeless(&self, elapsed: u64, config: &PauseConfig) -> bool {
        let Some(incumbent) = self.rate_of(self.incumbent) else { return false };
        self.trial.is_some()
            && elapsed >= config.epoch_ns / 2
            && rate(self.gained, elapsed) < incumbent / HOPELESS_DIVISOR
    }

    /// Ends an epoch that brought `measured` per second.
    fn close(&mut self, measured: u64, allowed: Allowed, config: &PauseConfig) {
        let promising = measured > self.rate_of(self.incumbent).unwrap_or(0) / 2;
        if self.trial.is_some() && !self.confirming && promising {
            self.confirming = true;
            return;
        }
        self.confirming = false;
        if let Some(trial) = self.trial.take() {
            let changed = self.judge(trial, measured, config);
            self.stretch = if changed { FIRST_STRETCH } else { self.stretch.saturating_mul(2) };
            self.stretch = self.stretch.min(config.stretch_epochs);
            self.epochs_left = self.stretch;
            return;
        }
        let stretch = self.stretch;
        let record = self.record(self.incumbent);
        let settled = stretch > FIRST_STRETCH;
        record.rate = Some(record.rate.filter(|_| settled).map_or(measured, |old| old - old / 4 + measured / 4));
        self.epochs_left = self.epochs_left.saturating_sub(1);
        self.trial = self.better_remembered(measured, allowed, config);
        if self.trial.is_some() {
            self.record(self.incumbent).rate = Some(measured);
        } else if self.epochs_left == 0 {
            self.trial = self.pick_trial(allowed);
            self.epochs_left = self.stretch;
        }
    }

    /// The incumbent has just brought less than another tactic once did: that one is tried at once. Yielding on one CPU
    /// is like that: as good as parking while the scheduler's rotation happens to follow the lock, a third when not.
    fn better_remembered(&self, measured: u64, allowed: Allowed, config: &PauseConfig) -> Option<Tactic> {
        let needed = raised(measured, config.drop_sixteenths);
        Tactic::ALL
            .into_iter()
            .filter(|tactic| allowed.contains(*tactic) && *tactic != self.incumbent)
            .filter_map(|tactic| self.rate_of(tactic).map(|rate| (rate, tactic)))
            .filter(|(rate, _)| *rate > needed)
            .max_by_key(|(rate, _)| *rate)
            .map(|(_, tactic)| tactic)
    }

    /// Compares a finished trial with the incumbent; true if it took over.
    fn judge(&mut self, trial: Tactic, measured: u64, config: &PauseConfig) -> bool {
        let incumbent = self.rate_of(self.incumbent).unwrap_or(0);
        let needed = raised(incumbent, config.hysteresis_sixteenths);
        let won = measured > needed;
        self.record(trial).rate = Some(measured);
        let loser = if won { mem::replace(&mut self.incumbent, trial) } else { trial };
        let hopeless = !won && measured < incumbent / 2;
        let record = self.record(loser);
        let (factor, bound) = if hopeless { (4, PATIENCE.1) } else { (2, PATIENCE.0) };
        record.patience = (record.patience * factor).clamp(1, bound);
        record.wait = record.patience;
        won
    }

    /// The next tactic to try: each in turn, passing over those that wait.
    fn pick_trial(&mut self, allowed: Allowed) -> Option<Tactic> {
        let mut found = None;
        for step in 0..Tactic::COUNT {
            let tactic = Tactic::ALL[(usize::from(self.next_trial) + step) % Tactic::COUNT];
            if !allowed.contains(tactic) || tactic == self.incumbent {
                continue;
            }
            let record = self.record(tactic);
            if record.wait > 0 {
                record.wait -= 1;
            } else if found.is_none() {
                found = Some(tactic);
            }
        }
        if let Some(tactic) = found {
            self.next_trial = tactic as u8 + 1;
        }
        found
    }
}

fn rate(gained: u64, elapsed_ns: u64) -> u64 {
    gained.saturating_mul(1_000_000_000) / elapsed_ns.max(1)
}

fn raised(rate: u64, sixteenths: u32) -> u64 {
    rate.saturating_add(rate / 16 * u64::from(sixteenths))
}
