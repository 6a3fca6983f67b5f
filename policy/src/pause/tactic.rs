// SPDX-License-Identifier: Apache-2.0
//! Which mechanism to use, learnt from what it brought: a race between tactics, measured in progress per second.
//!
//! No mechanism wins everywhere (design 5.4: parking is three times as good as yielding with 8 vCPUs on one CPU, and a
//! fifth worse with 8 on two), and the reasons lie in the host kernel. So the policy tries and measures. One tactic is
//! kept for a stretch of epochs, then another is tried for one epoch; it replaces the present one when it brings more
//! by the hysteresis. A trial that is hopeless ends after half its epoch, and each lost trial makes the tactic
//! wait longer for its next one: a trial costs at most one part of the stretch, and less with time. So much depends on
//! the first tactic, which is what was measured to be best with as many vCPUs on as many CPUs.
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
    /// Yield to an owner that wants a CPU, and spin otherwise: how a trial of spinning begins. Whoever gave its CPU away has
    /// its turn before those who spin can keep the order by themselves.
    Help,
}

impl Tactic {
    const ALL: [Self; 3] = [Self::Spin, Self::Yield, Self::Park];
    pub(crate) const COUNT: usize = Self::ALL.len();
}

/// vCPUs for each CPU from which on parking is the first tactic.
const MANY_PER_CPU: usize = 4;
/// What the fair scheduler gives a task at a time (its base slice), and for how many of them a trial of spinning helps at most.
const SLICE_NS: u64 = 3_000_000;
const MOST_TURNS: u64 = 8;
/// vCPUs on one CPU of which a yield can only reach the right one.
const PAIR: usize = 2;

/// The tactics that may be used at all, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    mask: u8,
    first: Tactic,
    /// How long a trial of spinning helps before it is measured: each vCPU has the CPU once.
    help_ns: u64,
}

impl Allowed {
    /// What the granted mechanisms and the number of CPUs leave; never nothing.
    pub(crate) fn new(config: &PauseConfig, vcpus: usize, usable_cpus: u32) -> Self {
        let turns = u64::try_from(vcpus.div_ceil(usable_cpus.max(1) as usize)).unwrap_or(MOST_TURNS).min(MOST_TURNS);
        let mechanisms = config.mechanisms;
        let yields = mechanisms.sched_yield || mechanisms.hypercall;
        let acts = yields || mechanisms.park;
        let one_cpu = usable_cpus == 1;
        let bit = |tactic: Tactic, granted: bool| u8::from(granted) << tactic as u8;
        // On one CPU nobody else runs while the source spins, unless the kernel sees it: not worth a trial.
        let spins = !(one_cpu && acts) || mechanisms.pause_exits;
        let mask = bit(Tactic::Spin, spins) | bit(Tactic::Yield, yields) | bit(Tactic::Park, mechanisms.park);
        // With a CPU for each vCPU spinning wins, with one for all or for many parking, between the two yielding
        // (docs/pause-loops.md: on two CPUs, yielding makes twice the hand-overs of parking with 4 vCPUs, three quarters
        // with 8, a third with 16).
        let many = vcpus >= MANY_PER_CPU.saturating_mul(usable_cpus as usize);
        let crowd = one_cpu && vcpus > PAIR;
        let first = match (vcpus <= usable_cpus as usize, mechanisms.park && (crowd || many || !yields), yields) {
            (true, _, _) if !(one_cpu && acts) => Tactic::Spin,
            (_, true, _) => Tactic::Park,
            (_, _, true) => Tactic::Yield,
            (_, _, false) => Tactic::Spin,
        };
        Self { mask, first, help_ns: turns * SLICE_NS }
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
    /// How many times the usual stretch passes before the next trial; doubles with each one lost.
    patience: u16,
}

/// Progress that was reported: so many waits ended since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gain {
    /// Waits that ended.
    pub(crate) count: u32,
    /// When the count began.
    pub(crate) since: Nanos,
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
    /// Progress of the epoch, in 1024ths of a wait.
    gained: u64,
    /// Time of the vCPUs that reports of the epoch speak of, added up.
    covered_ns: u64,
    /// What the incumbent brought in its last epochs, the latest last.
    recent: [Option<u64>; RECENT],
    /// Epochs since the last trial.
    kept: u32,
    next_trial: usize,
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
            covered_ns: 0,
            recent: [None; RECENT],
            kept: 0,
            next_trial: 0,
        }
    }
}

/// Epochs of the incumbent whose median is its rate: an epoch in which a foreign task took a CPU for a slice (3 ms) says
/// nothing about a tactic.
const RECENT: usize = 5;
/// An epoch this many times longer than meant measured a pause in the guest's work, not a tactic, unless it brought more than
/// usual: where waits are short nobody reports.
const STALE_EPOCHS: u64 = 8;
/// After a change of tactic this part of an epoch passes unmeasured: parks of the old tactic still run out.
const SETTLE_DIVISOR: u64 = 4;
/// A trial is hopeless after half its epoch when it brings less than this part of the incumbent. Not more: a parked
/// vCPU whose CPU a foreign task took waits up to a slice, which says little about parking.
const HOPELESS_DIVISOR: u64 = 16;
/// A trial that brings at least three quarters is measured again, from scratch and this many times longer: 80 hand-overs
/// are too few to tell 20 % apart, and yielding shines for the first rounds after parking has put the vCPUs in order.
const CONFIRM_EPOCHS: u64 = 4;
/// Upper bounds of [`Record::patience`] for a tactic that came close and for one that did not bring half.
const PATIENCE: (u16, u16) = (32, 256);

impl Learner {
    /// The tactic to use at `now`, after more progress was seen; `None` if nothing is known of progress, and then nothing is
    /// tried.
    ///
    /// A report speaks of the time since its vCPU's last one, and only what falls into the epoch counts for its tactic. What is
    /// compared is progress for the time spoken of: where waits are short few report, and the silent are taken to fare alike.
    pub(crate) fn observe(
        &mut self,
        gained: Option<Gain>,
        allowed: Allowed,
        config: &PauseConfig,
        now: Nanos,
    ) -> Tactic {
        if !self.started || !allowed.contains(self.current()) {
            *self = Self { started: true, incumbent: allowed.first, ..Self::default() };
            self.restart(now, allowed, config);
        }
        let Some(gain) = gained.filter(|_| !now.is_before(self.epoch_start)) else { return self.current_at(now) };
        let covered = now.since(gain.since.later(self.epoch_start));
        let part = u128::from(gain.count) * 1024 * u128::from(covered) / u128::from(now.since(gain.since).max(1));
        self.gained = self.gained.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        self.covered_ns = self.covered_ns.saturating_add(covered);
        let elapsed = now.since(self.epoch_start);
        let length = self.epoch_length(config);
        let measured = rate(self.gained, self.covered_ns);
        let is_told = self.covered_ns >= config.epoch_ns / 2;
        if elapsed > length * STALE_EPOCHS && !(is_told && measured > self.usual().unwrap_or(0)) {
            self.restart(now, allowed, config);
        } else if is_told && (elapsed >= length || self.is_hopeless(elapsed, measured, config)) {
            self.close(measured, allowed, config);
            self.restart(now, allowed, config);
        }
        self.current_at(now)
    }

    /// The tactic in use at `now`, which may be the beginning of a trial.
    fn current_at(&self, now: Nanos) -> Tactic {
        match self.current() {
            Tactic::Spin if self.trial.is_some() && now.is_before(self.epoch_start) => Tactic::Help,
            tactic => tactic,
        }
    }

    /// The tactic in use.
    pub(crate) fn current(&self) -> Tactic {
        self.trial.unwrap_or(self.incumbent)
    }

    /// What the incumbent usually brings; `None` before its first epoch has ended.
    fn usual(&self) -> Option<u64> {
        let mut known: [u64; RECENT] = [0; RECENT];
        let mut count = 0;
        for rate in self.recent.iter().flatten() {
            known[count] = *rate;
            count += 1;
        }
        known[..count].sort_unstable();
        known[..count].get(count / 2).copied()
    }

    fn restart(&mut self, now: Nanos, allowed: Allowed, config: &PauseConfig) {
        let settle = match self.trial {
            Some(Tactic::Spin) if !self.confirming => allowed.help_ns.max(config.epoch_ns / SETTLE_DIVISOR),
            Some(_) if !self.confirming => config.epoch_ns / SETTLE_DIVISOR,
            Some(_) | None => 0,
        };
        self.epoch_start = now.after(settle);
        (self.gained, self.covered_ns) = (0, 0);
    }

    fn epoch_length(&self, config: &PauseConfig) -> u64 {
        config.epoch_ns * if self.confirming { CONFIRM_EPOCHS } else { 1 }
    }

    fn is_hopeless(&self, elapsed: u64, measured: u64, config: &PauseConfig) -> bool {
        let Some(incumbent) = self.usual() else { return false };
        self.trial.is_some() && elapsed >= config.epoch_ns / 2 && measured < incumbent / HOPELESS_DIVISOR
    }

    /// Ends an epoch that brought `measured` per second.
    fn close(&mut self, measured: u64, allowed: Allowed, config: &PauseConfig) {
        let Some(trial) = self.trial else { return self.keep(measured, allowed, config) };
        let usual = self.usual().unwrap_or(0);
        if !self.confirming && measured > usual - usual / 4 {
            self.confirming = true;
            return;
        }
        self.confirming = false;
        self.trial = None;
        self.kept = 0;
        self.judge(trial, measured, config);
    }

    /// Ends an epoch of the incumbent, and begins a trial if one is due.
    fn keep(&mut self, measured: u64, allowed: Allowed, config: &PauseConfig) {
        self.recent.rotate_left(1);
        self.recent[RECENT - 1] = Some(measured);
        self.records[self.incumbent as usize].rate = self.usual();
        self.kept = self.kept.saturating_add(1);
        self.trial = self.better_remembered(allowed, config).or_else(|| self.due_trial(allowed, config));
    }

    /// The incumbent brings less than another tactic once did: that one is tried. Yielding on one CPU is like that: as
    /// good as parking while the scheduler's rotation happens to follow the lock, a third when not.
    fn better_remembered(&self, allowed: Allowed, config: &PauseConfig) -> Option<Tactic> {
        let enough = self.recent.iter().flatten().count() == RECENT && self.kept as usize >= RECENT;
        let needed = raised(self.usual().filter(|_| enough)?, config.drop_sixteenths);
        self.others(allowed)
            .filter_map(|tactic| self.records[tactic as usize].rate.map(|rate| (rate, tactic)))
            .filter(|(rate, _)| *rate > needed)
            .max_by_key(|(rate, _)| *rate)
            .map(|(_, tactic)| tactic)
    }

    fn others(&self, allowed: Allowed) -> impl Iterator<Item = Tactic> + use<> {
        let incumbent = self.incumbent;
        Tactic::ALL.into_iter().filter(move |tactic| allowed.contains(*tactic) && *tactic != incumbent)
    }

    /// The tactic whose turn it is, once the incumbent was kept for long enough: one that was never tried soon, for nothing
    /// says yet that the first is right here.
    fn due_trial(&mut self, allowed: Allowed, config: &PauseConfig) -> Option<Tactic> {
        let in_turn = |tactic: &Tactic| (*tactic as usize + Tactic::COUNT - self.next_trial) % Tactic::COUNT;
        let waits = |tactic: &Tactic| match self.records[*tactic as usize] {
            Record { rate: None, .. } => config.first_trial_epochs.min(config.stretch_epochs),
            Record { patience, .. } => u32::from(patience.max(1)).saturating_mul(config.stretch_epochs),
        };
        let due = |tactic: &Tactic| self.kept >= waits(tactic);
        let tactic = self.others(allowed).filter(due).min_by_key(in_turn)?;
        self.next_trial = (tactic as usize + 1) % Tactic::COUNT;
        Some(tactic)
    }

    /// Compares a finished trial with the incumbent.
    fn judge(&mut self, trial: Tactic, measured: u64, config: &PauseConfig) {
        let incumbent = self.usual().unwrap_or(0);
        let won = measured > raised(incumbent, config.hysteresis_sixteenths);
        self.records[trial as usize].rate = Some(measured);
        let loser = if won { mem::replace(&mut self.incumbent, trial) } else { trial };
        if won {
            self.recent = [None; RECENT];
            self.records[trial as usize].patience = 0;
        }
        let hopeless = !won && measured < incumbent / 2;
        let (factor, bound) = if hopeless { (4, PATIENCE.1) } else { (2, PATIENCE.0) };
        let record = &mut self.records[loser as usize];
        record.patience = (record.patience.max(1) * factor).min(bound);
    }
}

fn rate(gained: u64, elapsed_ns: u64) -> u64 {
    gained.saturating_mul(1_000_000_000) / elapsed_ns.max(1)
}

fn raised(rate: u64, sixteenths: u32) -> u64 {
    rate.saturating_add(rate / 16 * u64::from(sixteenths))
}

#[cfg(test)]
mod tests {
    use super::super::config::Mechanisms;
    use super::*;

    const MS: u64 = 1_000_000;
    /// A report every 100 us.
    const REPORT_NS: u64 = 100_000;

    fn allowed(vcpus: usize, cpus: u32) -> Allowed {
        let mechanisms = Mechanisms { sched_yield: true, park: true, ..Mechanisms::default() };
        Allowed::new(&PauseConfig { mechanisms, ..PauseConfig::default() }, vcpus, cpus)
    }

    /// What a guest gets done in `ms` whose progress per second with each tactic at each millisecond `rate` says, and the
    /// tactic it ends with.
    fn race(allowed: Allowed, ms: u64, rate: impl Fn(Tactic, u64) -> u64) -> (u64, Tactic) {
        let config = PauseConfig::default();
        let mut learner = Learner::default();
        let (mut done, mut told, mut parts) = (0, 0, 0);
        let mut tactic = allowed.first;
        for at in (0..ms * MS).step_by(usize::try_from(REPORT_NS).expect("small")) {
            parts += rate(tactic, at / MS) * REPORT_NS;
            done = parts / 1_000_000_000;
            let count = u32::try_from(done - told).expect("small");
            told = done;
            let gain = Gain { count, since: Nanos(at) };
            tactic = learner.observe(Some(gain), allowed, &config, Nanos(at + REPORT_NS));
        }
        (done, tactic)
    }

    #[test]
    fn the_first_tactic_is_what_was_measured_best() {
        let first = |vcpus, cpus| allowed(vcpus, cpus).first;
        assert_eq!(
            [first(1, 1), first(2, 1), first(4, 1), first(16, 1)],
            [Tactic::Yield, Tactic::Yield, Tactic::Park, Tactic::Park]
        );
        assert_eq!(
            [first(2, 2), first(4, 2), first(8, 2), first(16, 2)],
            [Tactic::Spin, Tactic::Yield, Tactic::Park, Tactic::Park]
        );
    }

    #[test]
    fn the_better_tactic_takes_over_from_the_first() {
        let rates = |tactic, _| match tactic {
            Tactic::Spin => 400,
            Tactic::Yield => 8_000,
            Tactic::Park => 10_000,
            Tactic::Help => 4_000,
        };
        assert_eq!(race(allowed(4, 2), 3_000, rates).1, Tactic::Park);
        let turned =
            |tactic, ms| if ms < 5_000 { rates(tactic, ms) } else { [400, 12_000, 9_000, 4_000][tactic as usize] };
        assert_eq!(race(allowed(4, 2), 60_000, turned).1, Tactic::Yield, "what was best once is not best for ever");
    }

    #[test]
    fn to_know_the_others_costs_little_and_less_with_time() {
        let rates = |tactic, _| [400, 15_000, 8_000, 4_000][tactic as usize];
        for (ms, least) in [(1_000, 970), (10_000, 985), (100_000, 990)] {
            let (done, tactic) = race(allowed(4, 2), ms, rates);
            assert!(tactic == Tactic::Yield && done >= 15 * ms * least / 1000, "{done} in {ms} ms");
        }
    }

    #[test]
    fn a_stall_now_and_then_is_no_reason_to_change() {
        // A foreign task takes the CPU for most of every seventh epoch, whichever tactic is in use.
        let rates = |tactic, ms| if ms / 10 % 7 == 3 { 500 } else { [400, 8_000, 10_000, 4_000][tactic as usize] };
        let stalls = race(allowed(8, 2), 20_000, rates);
        let steady =
            race(allowed(8, 2), 20_000, |tactic, ms| if ms / 10 % 7 == 3 { 500 } else { [10_000; 4][tactic as usize] });
        assert!(stalls.1 == Tactic::Park && stalls.0 * 100 >= steady.0 * 97, "{stalls:?} {steady:?}");
    }

    #[test]
    fn a_tactic_under_which_nobody_needs_to_report_wins() {
        let (config, allowed) = (PauseConfig::default(), allowed(8, 2));
        let mut learner = Learner::default();
        let mut tactic = allowed.first;
        let (mut at, mut told, mut spun) = (0, 0, 0);
        while at < 1_000 * MS {
            // One of eight reports each time. Spinning, all make 10,000 waits/s each and report every 40 ms; otherwise 1,000,
            // and a report every 100 us.
            let (pause, rate) = if tactic == Tactic::Spin { (40 * MS, 10_000) } else { (8 * REPORT_NS, 1_000) };
            at += pause;
            spun += if tactic == Tactic::Spin { pause } else { 0 };
            let count = u32::try_from((at - told) * rate / 1_000_000_000).expect("small");
            tactic = learner.observe(Some(Gain { count, since: Nanos(told) }), allowed, &config, Nanos(at));
            told = at;
        }
        assert!(tactic == Tactic::Spin && spun > 800 * MS, "{tactic:?} {spun}");
    }

    #[test]
    fn a_trial_of_spinning_begins_with_helping() {
        let (config, allowed) = (PauseConfig::default(), allowed(8, 2));
        let mut learner = Learner::default();
        let mut used = Vec::new();
        for at in (0..60 * MS).step_by(usize::try_from(REPORT_NS).expect("small")) {
            let gain = Gain { count: 1, since: Nanos(at) };
            let tactic = learner.observe(Some(gain), allowed, &config, Nanos(at + REPORT_NS));
            if used.last().is_none_or(|(last, _)| *last != tactic) {
                used.push((tactic, at / MS));
            }
        }
        assert_eq!(used[..3], [(Tactic::Park, 0), (Tactic::Help, 20), (Tactic::Spin, 32)]);
    }

    #[test]
    fn without_knowing_of_progress_nothing_is_tried() {
        let (config, allowed) = (PauseConfig::default(), allowed(8, 2));
        let mut learner = Learner::default();
        for at in 0..100_000 {
            assert_eq!(learner.observe(None, allowed, &config, Nanos(at * REPORT_NS)), Tactic::Park);
        }
    }

    #[test]
    fn a_tactic_that_is_no_longer_granted_is_left_at_once() {
        let mut learner = Learner::default();
        let config = PauseConfig::default();
        assert_eq!(
            learner.observe(Some(Gain { count: 1, since: Nanos(0) }), allowed(8, 2), &config, Nanos(1)),
            Tactic::Park
        );
        let mechanisms = Mechanisms { sched_yield: true, park: false, ..Mechanisms::default() };
        let fewer = Allowed::new(&PauseConfig { mechanisms, ..config }, 8, 2);
        assert_eq!(learner.observe(Some(Gain { count: 1, since: Nanos(0) }), fewer, &config, Nanos(2)), Tactic::Yield);
    }
}
