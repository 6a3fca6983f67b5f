// SPDX-License-Identifier: Apache-2.0
//! Sweeps: one arm of some scenarios under many settings, ranked, with the front of throughput against fairness.
//!
//! A *point* is a choice of values for the axes; point 0 is the arm as the file has it. A *case* is a scenario under one
//! condition (an overcommit ratio, say). Every point meets every case with the same seeds, and what counts is its
//! throughput as a share of point 0's in the same case: conditions are not compared with each other. Which jobs run where
//! and when is the caller's business. Invariant: a sweep that was made has no wrong setting in it, and its report does
//! not depend on the order in which its jobs ran.

use thiserror::Error;
use topology::host::HostTopology;

use crate::engine::Outcome;
use crate::host::HostModel;
use crate::scenario::{Measure, Scenario, ScenarioError};

mod report;

pub use report::{SweepReport, SweepRow};

/// Most combinations of settings.
const MOST_POINTS: usize = 10_000;

/// One key and the values it takes, as in a scenario file; a key that begins with `arm.` is of the swept arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The key.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

/// A scenario to sweep.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in the report.
    pub name: String,
    /// Its file.
    pub text: String,
    /// The captured host it names, if it names one.
    pub captured: Option<HostTopology>,
}

/// What is swept.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The arm, by name; the last of each scenario if none is given.
    pub arm: Option<String>,
    /// What is varied; every combination is a point. Empty: each parameter of the policy in turn.
    pub axes: Vec<Axis>,
    /// Under which conditions; every combination with every scenario is a case.
    pub conditions: Vec<Axis>,
    /// First seed.
    pub seed: u64,
    /// Seeds of each point in each case.
    pub runs: usize,
}

/// Why there is no sweep.
#[derive(Debug, Error)]
pub enum SweepError {
    /// Nothing to sweep.
    #[error("there is no scenario to sweep: name at least one")]
    NoScenario,
    /// A scenario has no such arm.
    #[error("{scenario} has no arm `{wanted}`: choose one it has")]
    NoSuchArm {
        /// The scenario.
        scenario: String,
        /// What was asked for.
        wanted: String,
    },
    /// A scenario or a setting is wrong.
    #[error("{scenario}: {source}")]
    Scenario {
        /// The scenario.
        scenario: String,
        /// What is wrong.
        source: ScenarioError,
    },
    /// Too many combinations.
    #[error("that is {points} combinations, and the most is {MOST_POINTS}: give fewer values, or sweep in parts")]
    TooMany {
        /// How many.
        points: usize,
    },
}

/// A setting, as key and value.
type Settings = Vec<(String, String)>;

/// One scenario under one condition, as each point has it.
struct Case {
    name: String,
    host: HostModel,
    arm: usize,
    /// By point.
    scenarios: Vec<Scenario>,
}

/// A sweep, ready to run.
pub struct Sweep {
    points: Vec<Settings>,
    cases: Vec<Case>,
    seed: u64,
    runs: usize,
}

impl Sweep {
    /// Reads every scenario with every setting.
    ///
    /// # Errors
    /// [`SweepError`].
    pub fn new(subjects: &[Subject], plan: &Plan) -> Result<Self, SweepError> {
        let count = |axes: &[Axis]| axes.iter().fold(1_usize, |count, axis| count.saturating_mul(axis.values.len()));
        let points = count(&plan.axes).saturating_mul(count(&plan.conditions));
        if points > MOST_POINTS {
            return Err(SweepError::TooMany { points });
        }
        let first = subjects.first().ok_or(SweepError::NoScenario)?;
        let mut points = vec![Settings::new()];
        if plan.axes.is_empty() {
            points.extend(one_at_a_time(first));
        } else {
            points.extend(combinations(&plan.axes));
        }
        let mut cases = Vec::new();
        for subject in subjects {
            for condition in combinations(&plan.conditions) {
                cases.push(Case::new(subject, &condition, &points, plan)?);
            }
        }
        Ok(Self { points, cases, seed: plan.seed, runs: plan.runs.max(1) })
    }

    /// Number of jobs.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.points.len() * self.cases.len() * self.runs
    }

    /// Does one job: a point in a case with a seed.
    ///
    /// # Errors
    /// [`SweepError::Scenario`] if the run gets stuck.
    pub fn run(&self, job: usize) -> Result<Outcome, SweepError> {
        let (at, run) = (job / self.runs, job % self.runs);
        let case = &self.cases[at % self.cases.len()];
        let scenario = &case.scenarios[at / self.cases.len()];
        let outcome = scenario.once(&case.host, &scenario.arms[case.arm], self.seed.wrapping_add(run as u64));
        outcome.map_err(|source| SweepError::Scenario { scenario: case.name.clone(), source })
    }

    /// The report on the outcomes of all jobs, in the order of the jobs.
    #[must_use]
    pub fn report(&self, outcomes: &[Outcome]) -> SweepReport {
        let means = |of: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            outcomes.chunks(self.runs).map(|runs| Measure::of(&runs.iter().map(of).collect::<Vec<_>>()).mean).collect()
        };
        let throughput = means(&Outcome::operations_per_s);
        let fairness = means(&Outcome::fairness);
        let cases = self.cases.len();
        let base = &throughput[..cases.min(throughput.len())];
        let rows = self.points.iter().enumerate().map(|(at, settings)| {
            let mine = at * cases..(at + 1) * cases;
            report::row(settings, (&throughput[mine.clone()], base), &fairness[mine])
        });
        let names = self.cases.iter().map(|case| case.name.clone()).collect();
        SweepReport::new(names, self.seed, self.runs, rows.collect())
    }
}

impl Case {
    fn new(subject: &Subject, condition: &Settings, points: &[Settings], plan: &Plan) -> Result<Self, SweepError> {
        let wrong = |source| SweepError::Scenario { scenario: subject.name.clone(), source };
        let plain = Scenario::parse(&subject.text).map_err(wrong)?;
        let arm = match &plan.arm {
            None => plain.arms.len() - 1,
            Some(wanted) => plain
                .arms
                .iter()
                .position(|arm| arm.name == *wanted)
                .ok_or_else(|| SweepError::NoSuchArm { scenario: subject.name.clone(), wanted: wanted.clone() })?,
        };
        let read = |point: &Settings| {
            let settings: Settings = condition.iter().chain(point).map(|one| of_arm(one, arm)).collect();
            Scenario::parse_with(&subject.text, &settings)
        };
        let scenarios = points.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let host = scenarios[0].host(subject.captured.clone()).map_err(wrong)?;
        let name =
            [subject.name.clone()].into_iter().chain(condition.iter().map(|(key, value)| format!("{key}={value}")));
        Ok(Self { name: name.collect::<Vec<_>>().join(" "), host, arm, scenarios })
    }
}

/// `arm.every` is the swept arm's; `arm.0.every` is the first arm's.
fn of_arm((key, value): &(String, String), arm: usize) -> (String, String) {
    let rest = key.strip_prefix("arm.").filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    (rest.map_or_else(|| key.clone(), |rest| format!("arm.{arm}.{rest}")), value.clone())
}

/// Every choice of one value for each axis, the last axis fastest.
fn combinations(axes: &[Axis]) -> Vec<Settings> {
    let mut all = vec![Settings::new()];
    for axis in axes {
        let longer = |settings: &Settings| {
            let settings = settings.clone();
            axis.values.iter().map(move |value| {
                let mut settings = settings.clone();
                settings.push((axis.key.clone(), value.clone()));
                settings
            })
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// What is varied if nothing else is said: K, windows, budgets, park bounds and the order of candidates, each alone.
fn one_at_a_time(subject: &Subject) -> Vec<Settings> {
    let hardware = subject.text.contains("\"tracepoint\"");
    let every: (&str, &[&str]) = if hardware {
        ("arm.every", &["1", "2", "4", "16", "32"])
    } else {
        ("arm.after", &["2us", "5us", "20us", "50us", "100us"])
    };
    let pause: [(&str, &[&str]); 10] = [
        ("bail_after", &["1", "6", "12"]),
        ("backoff_base_ns", &["10000", "200000", "1000000"]),
        ("backoff_max_ns", &["400000", "1600000", "25600000"]),
        ("park_named_ns", &["200000", "5000000"]),
        ("park_unnamed_ns", &["50000", "1000000"]),
        ("park_turn_ns", &["0", "1000000"]),
        ("scan_limit", &["4", "16"]),
        ("credit_ns", &["0", "1000000", "12000000"]),
        ("turn_every", &["2", "64"]),
        ("epoch_ns", &["2000000", "5000000", "40000000"]),
    ];
    let one = |key: String, values: &[&str]| -> Vec<Settings> {
        values.iter().map(|value| vec![(key.clone(), (*value).to_owned())]).collect()
    };
    let mut points = one(every.0.to_owned(), every.1);
    points.extend(one("arm.locality".into(), &["unknown"]));
    points.extend(pause.iter().flat_map(|(key, values)| one(format!("arm.pause.{key}"), values)));
    points
}

#[cfg(test)]
mod tests;
