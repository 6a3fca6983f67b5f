// SPDX-License-Identifier: Apache-2.0
//! Which mechanism to use, learnt from what it brought: a race between tactics, measured in progress per second.
//!
//! No mechanism wins everywhere (design 5.4: parking is three times as good as yielding with 8 vCPUs on one CPU, and a
//! fifth worse with 8 on two), and the reasons lie in the host kernel. So the policy tries and measures. One tactic is
//! kept for a stretch of epochs, then another is probed for one epoch; it replaces the present one when it brings more
//! by the hysteresis. A probe that is hopeless ends after a quarter of its epoch, and each lost probe makes the tactic
//! wait longer for its next one, so that the price of knowing falls with time.
//!
//! Invariant: integer arithmetic on arguments only; the same observations give the same tactic.

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
    /// Block where the target needs this very CPU, yield where it needs another.
    ParkLocal,
}

impl Tactic {
    const ALL: [Self; 4] = [Self::Spin, Self::Yield, Self::Park, Self::ParkLocal];
    const COUNT: usize = Self::ALL.len();
}

/// The tactics that may be used at all, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    mask: u8,
    first: Tactic,
}

impl Allowed {
    /// What the granted mechanisms and the number of CPUs leave. `Spin` is always among them.
    pub(crate) fn new(config: &PauseConfig, usable_cpus: u32) -> Self {
        let mechanisms = config.mechanisms;
        let yields = mechanisms.sched_yield || mechanisms.hypercall;
        let one_cpu = usable_cpus == 1;
        let bit = |tactic: Tactic, granted: bool| u8::from(granted) << tactic as u8;
        let mask = bit(Tactic::Spin, true)
            | bit(Tactic::Yield, yields)
            | bit(Tactic::Park, mechanisms.park)
            // On one CPU every target needs this very CPU: the same as `Park`.
            | bit(Tactic::ParkLocal, mechanisms.park && yields && !one_cpu);
        // Design 5.4: with one CPU parking wins from the start, with several yielding does.
        let first = match (one_cpu, mechanisms.park, yields) {
            (true, true, _) | (false, true, false) => Tactic::Park,
            (_, _, true) => Tactic::Yield,
            (_, false, false) => Tactic::Spin,
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
    /// Probes that pass this tactic over after it has lost once more.
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
    started: bool,
    epoch_start: Nanos,
    gained: u64,
    epochs_left: u32,
    next_trial: u8,
}

impl Default for Learner {
    fn default() -> Self {
        Self {
            records: [Record::default(); Tactic::COUNT],
            incumbent: Tactic::Spin,
            trial: None,
            started: false,
            epoch_start: Nanos(0),
            gained: 0,
            epochs_left: 1,
            next_trial: 0,
        }
    }
}

/// An epoch this many times longer than meant measured a pause in the guest's work, not a tactic.
const STALE_EPOCHS: u64 = 8;
/// After a change of tactic this part of an epoch passes unmeasured: parks of the old tactic still run out.
const SETTLE_DIVISOR: u64 = 8;
/// A trial may be judged hopeless after this part of its epoch, when it brings less than this part of the incumbent.
const HOPELESS_DIVISOR: u64 = 4;
/// A race within a factor of two is measured this many times longer: 80 hand-overs are too few to tell 20 % apart.
const CLOSE_FACTOR: u64 = 4;
/// Upper bounds of [`Record::patience`] for a tactic that came close and for one that did not bring half.
const PATIENCE: (u16, u16) = (8, 256);

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
        let settle = if self.trial.is_some() { config.epoch_ns / SETTLE_DIVISOR } else { 0 };
        self.epoch_start = now.after(settle);
        self.gained = 0;
    }

    fn epoch_length(&self, config: &PauseConfig) -> u64 {
        let close = self.trial.is_some_and(|trial| match (self.rate_of(trial), self.rate_of(self.incumbent)) {
            (Some(trial), Some(incumbent)) => trial.saturating_mul(2) > incumbent,
            _ => false,
        });
        config.epoch_ns * if close { CLOSE_FACTOR } else { 1 }
    }

    fn is_hopeless(&self, elapsed: u64, config: &PauseConfig) -> bool {
        let Some(incumbent) = self.rate_of(self.incumbent) else { return false };
        self.trial.is_some()
            && elapsed >= config.epoch_ns / HOPELESS_DIVISOR
            && rate(self.gained, elapsed) < incumbent / HOPELESS_DIVISOR
    }

    /// Ends an epoch that brought `measured` per second.
    fn close(&mut self, measured: u64, allowed: Allowed, config: &PauseConfig) {
        if let Some(trial) = self.trial.take() {
            self.judge(trial, measured, config);
            self.epochs_left = config.stretch_epochs;
            if self.untested(allowed) {
                self.epochs_left = 1;
            }
            return;
        }
        let record = self.record(self.incumbent);
        record.rate = Some(record.rate.map_or(measured, |old| old - old / 4 + measured / 4));
        self.epochs_left = self.epochs_left.saturating_sub(1);
        if self.epochs_left == 0 {
            self.trial = self.pick_trial(allowed);
            self.epochs_left = config.stretch_epochs;
        }
    }

    fn judge(&mut self, trial: Tactic, measured: u64, config: &PauseConfig) {
        let incumbent = self.rate_of(self.incumbent).unwrap_or(0);
        let needed = incumbent.saturating_add(incumbent / 16 * u64::from(config.hysteresis_sixteenths));
        let record = self.record(trial);
        record.rate = Some(measured);
        if measured > needed {
            record.patience = 0;
            self.incumbent = trial;
            return;
        }
        let bound = if measured < incumbent / 2 { PATIENCE.1 } else { PATIENCE.0 };
        record.patience = (record.patience * 2).clamp(1, bound);
        record.wait = record.patience;
    }

    fn untested(&self, allowed: Allowed) -> bool {
        Tactic::ALL.into_iter().any(|tactic| allowed.contains(tactic) && self.rate_of(tactic).is_none())
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
