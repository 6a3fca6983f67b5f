// SPDX-License-Identifier: Apache-2.0
//! Running a scenario's arms over several seeds, and the table of what they brought.
//!
//! Invariant: every arm sees the same seeds, so that arms differ by what they do and not by luck.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Scenario, ScenarioArm, ScenarioError};
use crate::engine::{Account, Outcome, Trace, World};
use crate::host::HostModel;

/// What was measured over the seeds: mean, sample standard deviation, number of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measure {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; zero for one run.
    pub stdev: f64,
    /// Runs.
    pub runs: usize,
}

impl Measure {
    pub(crate) fn of(values: &[f64]) -> Self {
        let runs = values.len();
        let count = float(runs as u64);
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let stdev = if runs > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Self { mean, stdev, runs }
    }
}

/// One quantity in one arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Its values.
    pub measure: Measure,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub arm: String,
    /// Quantities, the same in every arm and in the same order.
    pub cells: Vec<Cell>,
    /// Change of operations against the first arm, in per cent of that arm's mean.
    pub change_percent: f64,
    /// Sample standard deviation of the change over the seeds, each against the first arm's run with the same seed.
    pub change_stdev_percent: f64,
    /// Events of the model in all runs.
    pub events: u64,
    /// Fingerprints of the runs, by seed.
    pub fingerprints: Vec<u64>,
}

/// All arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's title.
    pub title: String,
    /// Simulated seconds of one run.
    pub seconds: f64,
    /// First seed; the others follow it.
    pub seed: u64,
    /// Arms in the order of the file.
    pub rows: Vec<Row>,
}

/// Names and units of what is measured.
const QUANTITIES: [&str; 9] = [
    "operations_per_s",
    "handovers_per_s",
    "spin_percent",
    "idle_percent",
    "acted_per_s",
    "pause_exits_per_s",
    "jain",
    "lock_wait_p99_us",
    "migrations_per_s",
];

#[expect(clippy::cast_precision_loss, reason = "for reading: 53 bits are more than any count here has")]
fn float(count: u64) -> f64 {
    count as f64
}

impl Outcome {
    /// Laps of all vCPUs of all VMs a simulated second.
    #[must_use]
    pub fn operations_per_s(&self) -> f64 {
        let laps = self.vms.iter().map(crate::engine::VmOutcome::total).sum::<u64>();
        float(laps) * 1e9 / float(self.duration_ns.max(1))
    }

    /// Jain's index over the vCPUs of a VM, of the VM where it is least.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        float(self.vms.iter().map(crate::engine::VmOutcome::jain).min().unwrap_or(1024)) / 1024.0
    }
}

fn quantities(outcome: &Outcome) -> [f64; QUANTITIES.len()] {
    let sum = |of: &dyn Fn(&crate::engine::VmOutcome) -> u64| outcome.vms.iter().map(of).sum::<u64>();
    let rate = |count: u64| float(count) * 1e9 / float(outcome.duration_ns.max(1));
    let total = float(outcome.cpu_ns.iter().sum::<u64>().max(1));
    let share = |account: Account| float(outcome.cpu_ns[account as usize]) * 100.0 / total;
    let longest = outcome.vms.iter().map(|vm| vm.lock_wait_ns[1]).max().unwrap_or(0);
    [
        outcome.operations_per_s(),
        rate(sum(&|vm| vm.counts.hand_overs)),
        share(Account::Spin),
        share(Account::Idle),
        rate(sum(&|vm| vm.counts.acted)),
        rate(sum(&|vm| vm.counts.pause_exits)),
        outcome.fairness(),
        float(longest) / 1e3,
        rate(sum(&|vm| vm.migrations)),
    ]
}

impl Scenario {
    /// The world of one arm with one seed.
    ///
    /// # Errors
    /// [`ScenarioError::Sim`] if a VM contradicts the host.
    pub fn world(&self, host: &HostModel, arm: &ScenarioArm, seed: u64, trace: Trace) -> Result<World, ScenarioError> {
        Ok(World::new(host.clone(), arm.params, self.vms(arm), seed, trace)?)
    }

    /// One run of one arm.
    ///
    /// # Errors
    /// [`ScenarioError::Sim`] if the arm cannot be built or gets stuck.
    pub fn once(&self, host: &HostModel, arm: &ScenarioArm, seed: u64) -> Result<Outcome, ScenarioError> {
        let mut world = self.world(host, arm, seed, Trace::default())?;
        world.run_until(self.duration_ns)?;
        Ok(world.outcome())
    }

    /// Runs every arm with `runs` seeds from `seed` on, one after the other.
    ///
    /// # Errors
    /// [`ScenarioError::Sim`] if an arm cannot be built or gets stuck.
    pub fn run(&self, host: &HostModel, seed: u64, runs: usize) -> Result<Report, ScenarioError> {
        let seeds = || (0..runs).map(|run| seed.wrapping_add(run as u64));
        let all = self.arms.iter().flat_map(|arm| seeds().map(move |seed| self.once(host, arm, seed)));
        Ok(self.report(seed, &all.collect::<Result<Vec<_>, _>>()?))
    }

    /// The report on the outcomes of all arms from `seed` on: arm by arm, each with as many seeds.
    #[must_use]
    pub fn report(&self, seed: u64, outcomes: &[Outcome]) -> Report {
        let runs = (outcomes.len() / self.arms.len().max(1)).max(1);
        let base = &outcomes[..runs.min(outcomes.len())];
        let rows =
            self.arms.iter().zip(outcomes.chunks(runs)).map(|(arm, outcomes)| row(arm, outcomes, base)).collect();
        Report { title: self.title.clone(), seconds: float(self.duration_ns) / 1e9, seed, rows }
    }
}

/// One arm's row; `base` are the outcomes of the first arm with the same seeds.
fn row(arm: &ScenarioArm, outcomes: &[Outcome], base: &[Outcome]) -> Row {
    let values: Vec<_> = outcomes.iter().map(quantities).collect();
    let cell = |(at, &name): (usize, &&'static str)| {
        let column: Vec<f64> = values.iter().map(|row| row[at]).collect();
        Cell { name, measure: Measure::of(&column) }
    };
    let cells: Vec<Cell> = QUANTITIES.iter().enumerate().map(cell).collect();
    let change = |mine: f64, base: f64| if base > 0.0 { (mine - base) * 100.0 / base } else { 0.0 };
    let bases: Vec<f64> = base.iter().map(Outcome::operations_per_s).collect();
    let changes: Vec<f64> = values.iter().zip(&bases).map(|(row, &base)| change(row[0], base)).collect();
    Row {
        arm: arm.name.clone(),
        change_percent: change(cells[0].measure.mean, Measure::of(&bases).mean),
        change_stdev_percent: Measure::of(&changes).stdev,
        events: outcomes.iter().map(|outcome| outcome.events).sum(),
        fingerprints: outcomes.iter().map(|outcome| outcome.fingerprint).collect(),
        cells,
    }
}

impl Report {
    /// The report as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let runs = self.rows.first().map_or(0, |row| row.cells[0].measure.runs);
        let _ = writeln!(
            text,
            "{}\n{runs} seeds from {}, {} simulated seconds each\n",
            self.title, self.seed, self.seconds
        );
        let _ = write!(text, "{:14} {:>24} {:>8}", "arm", "operations/s", "change");
        let _ = writeln!(
            text,
            " {:>12} {:>7} {:>7} {:>10} {:>11} {:>6} {:>11} {:>10}",
            "hand-overs/s", "spin %", "idle %", "acted/s", "PLE exits/s", "Jain", "p99 wait µs", "moves/s"
        );
        for row in &self.rows {
            let value = |at: usize| row.cells[at].measure.mean;
            let operations = row.cells[0].measure;
            let spread = format!("{:.0} ± {:.0}", operations.mean, operations.stdev);
            let _ = write!(text, "{:14} {spread:>24} {:>7.1}%", row.arm, row.change_percent);
            let _ = writeln!(
                text,
                " {:>12.0} {:>7.2} {:>7.2} {:>10.0} {:>11.0} {:>6.3} {:>11.1} {:>10.0}",
                value(1),
                value(2),
                value(3),
                value(4),
                value(5),
                value(6),
                value(7),
                value(8)
            );
        }
        text
    }
}
