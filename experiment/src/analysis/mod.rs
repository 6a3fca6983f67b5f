// SPDX-License-Identifier: Apache-2.0
//! What the samples of a run say: each arm of each workload and ratio, and how it compares with the baseline.
//!
//! Pure. Invariant: every measured run is counted, those that lie far from the others too; warm-ups and failed cells are
//! never counted and always listed. Keys are only added to.

mod best;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::directory::RunInfo;
use crate::plan::{ArmSettings, Plan};
use crate::sample::{CellRecord, GuestSample, Outcome};
use crate::stats::{self, Difference, Interval, Summary, Verdict, bootstrap_mean, compare_paired, compare_unpaired};

/// Confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// Everything that is said about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Version of the document, 1.
    pub schema: u32,
    /// What the plan is for.
    pub description: String,
    /// How long each guest worked, in milliseconds.
    pub window_ms: u32,
    /// Counted runs that the plan asks for.
    pub repetitions: u32,
    /// Runs before those, which are not counted.
    pub warm_up: u32,
    /// The arm that the others are compared with.
    pub baseline: String,
    /// What each arm changes about a machine.
    #[serde(default)]
    pub arms: BTreeMap<String, ArmSettings>,
    /// Host CPUs that all guests shared, as a list.
    pub cpus: String,
    /// The run: seed, host, versions.
    pub run: RunInfo,
    /// Cells of the plan, warm-ups included.
    pub cells: usize,
    /// Of these, cells that are done.
    pub done: usize,
    /// Comparisons that the probabilities are corrected for.
    pub comparisons: usize,
    /// Load average of the host before the cells; absent if it could not be read.
    pub load_before: Option<Summary>,
    /// What others took of the host CPUs while cells ran; absent if it could not be read.
    #[serde(default)]
    pub others: Option<Others>,
    /// A group a workload and ratio, in the order of the plan.
    pub groups: Vec<Group>,
    /// Cells that brought no number, and why.
    pub failures: Vec<Failure>,
}

/// What others than the guests and this program took of the time of the host CPUs while cells ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// Shares of the cells, from 0 to 1.
    pub share: Summary,
    /// The name of the cell that was disturbed most.
    pub most_in: String,
}

impl Others {
    fn of(records: &[CellRecord]) -> Option<Self> {
        let known = || records.iter().filter_map(|record| record.others_share.map(|share| (share, &record.name)));
        let share = Summary::of(&known().map(|(share, _)| share).collect::<Vec<_>>())?;
        let (_, name) = known().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some(Self { share, most_in: name.clone() })
    }
}

/// A cell that brought no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its name.
    pub cell: String,
    /// Why.
    pub why: String,
}

/// A workload at a ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The workload.
    pub workload: String,
    /// vCPUs of all guests per host CPU.
    pub ratio: f64,
    /// Guests.
    pub guests: u32,
    /// vCPUs of each.
    pub vcpus: u32,
    /// The arm with the greatest geometric mean; absent if no arm has a number above 0 in every run.
    #[serde(default)]
    pub best: Option<String>,
    /// A row an arm, in the order of the plan.
    pub rows: Vec<Row>,
}

/// A counted run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Its cell.
    pub cell: usize,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Operations a second of all guests together.
    pub operations_per_s: f64,
    /// Whether it lies far from the others (Tukey's fences). It is counted all the same.
    pub is_outlier: bool,
}

/// An arm of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The arm.
    pub arm: String,
    /// Operations a second of all guests together, over the runs; absent if none brought a number.
    pub throughput: Option<Summary>,
    /// Where the mean is with 95 % confidence, by bootstrap; absent with fewer than two runs.
    pub interval: Option<Interval>,
    /// The runs.
    pub values: Vec<Value>,
    /// The mean's change from the baseline's mean, in per cent of that.
    pub change_percent: Option<f64>,
    /// How it compares with the baseline; absent for the baseline itself and where that cannot be said.
    pub comparison: Option<Comparison>,
    /// How it compares with the best arm of the group; absent for that arm itself and where it cannot be said.
    #[serde(default)]
    pub to_best: Option<Comparison>,
    /// Beside the throughput.
    pub details: Details,
}

/// A comparison with the baseline, or with the best arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The test.
    #[serde(flatten)]
    pub difference: Difference,
    /// Its probability, corrected for all comparisons of the run with baselines, or with best arms (Holm).
    pub p_corrected: f64,
    /// What follows.
    pub verdict: Verdict,
}

impl Comparison {
    /// Nothing follows before the probability is corrected.
    const fn uncorrected(difference: Difference) -> Self {
        Self { difference, p_corrected: difference.p, verdict: Verdict::NoDifferenceShown }
    }
}

/// Means over the runs, but where something else is said. What a workload does not time is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Jain's index over the guests' throughput; absent if there is only one.
    pub guests_jain: Option<f64>,
    /// Jain's index over the vCPUs of a guest.
    pub vcpus_jain: Option<f64>,
    /// Spinning, as a share of the time of all vCPUs.
    pub spin_share: Option<f64>,
    /// 99th percentile of the wait, of the guest where it is longest; the median over the runs, in microseconds.
    pub wait_p99_us: Option<f64>,
    /// Time runnable without a CPU, as a share of the time of all vCPUs: what guests see as steal.
    pub steal_share: Option<f64>,
    /// Pause events a second, all guests.
    pub events_per_s: f64,
    /// Actions about pause loops for each operation.
    pub actions_per_operation: Option<f64>,
    /// Of the actions, those after which the CPU changed hands.
    pub boosted_share: Option<f64>,
    /// Bail-outs by reason, over all runs.
    pub bailed: BTreeMap<String, u64>,
    /// Where the vCPUs' time went, as shares that add up to 1, start and end of the guests included.
    pub ledger: BTreeMap<String, f64>,
    /// How much later than the first the last guest ended, at most, in milliseconds.
    pub ended_late_ms: f64,
}

impl Analysis {
    /// Of the cells that are done.
    #[must_use]
    pub fn new(plan: &Plan, run: &RunInfo, records: &[CellRecord], cells: usize) -> Self {
        let mut groups = Vec::new();
        for (workload_at, workload) in plan.workloads.iter().enumerate() {
            for (load_at, load) in plan.loads.iter().enumerate() {
                let of_arm = |arm| counted(records, (workload_at, load_at, arm));
                let mut rows = rows(plan, (0..plan.arms.len()).map(of_arm).collect());
                groups.push(Group {
                    workload: workload.name.clone(),
                    ratio: load.ratio.value(),
                    guests: load.guests.count,
                    vcpus: load.guests.vcpus,
                    best: best::compare_with_best(&mut rows),
                    rows,
                });
            }
        }
        let comparisons = correct(&mut groups, |row| row.comparison.as_mut());
        correct(&mut groups, |row| row.to_best.as_mut());
        let loads: Vec<f64> = records.iter().filter_map(|record| record.load_before).collect();
        Self {
            schema: 1,
            description: plan.description.clone(),
            window_ms: plan.window_ms,
            repetitions: plan.repetitions,
            warm_up: plan.warm_up,
            baseline: plan.arms[plan.baseline].name.clone(),
            arms: plan.arms.iter().map(|arm| (arm.name.clone(), arm.settings.clone())).collect(),
            cpus: plan.cpus.to_string(),
            run: run.clone(),
            cells,
            done: records.len(),
            comparisons,
            load_before: Summary::of(&loads),
            others: Others::of(records),
            groups,
            failures: failures(records),
        }
    }
}

fn failures(records: &[CellRecord]) -> Vec<Failure> {
    let failed = |record: &CellRecord| match &record.outcome {
        Outcome::Measured(_) => None,
        Outcome::Failed(why) => Some(Failure { cell: record.name.clone(), why: why.clone() }),
    };
    records.iter().filter_map(failed).collect()
}

/// A counted run with its samples.
type Counted<'a> = (&'a CellRecord, &'a [GuestSample]);

fn counted(records: &[CellRecord], (workload, load, arm): (usize, usize, usize)) -> Vec<Counted<'_>> {
    let is_wanted = |record: &&CellRecord| {
        let cell = &record.cell;
        !cell.is_warm_up && (cell.workload, cell.load, cell.arm) == (workload, load, arm)
    };
    let mut found: Vec<Counted<'_>> = records
        .iter()
        .filter(is_wanted)
        .filter_map(|record| record.outcome.samples().map(|samples| (record, samples)))
        .collect();
    found.sort_by_key(|(record, _)| record.cell.repetition);
    found
}

fn rows(plan: &Plan, arms: Vec<Vec<Counted<'_>>>) -> Vec<Row> {
    let values: Vec<Vec<Value>> = arms.iter().map(|runs| values(runs)).collect();
    let base = &values[plan.baseline];
    let mean = |values: &[Value]| Summary::of(&rates(values)).map(|summary| summary.mean);
    let base_mean = mean(base).filter(|mean| *mean > 0.0);
    let row = |at: usize| {
        let (of_arm, runs) = (&values[at], &arms[at]);
        let change = |mean: f64| base_mean.map(|base| 100.0 * (mean - base) / base);
        let difference = (at != plan.baseline).then(|| compare(of_arm, base)).flatten();
        Row {
            arm: plan.arms[at].name.clone(),
            throughput: Summary::of(&rates(of_arm)),
            interval: bootstrap_mean(&rates(of_arm), CONFIDENCE, plan.seed),
            change_percent: mean(of_arm).and_then(change),
            comparison: difference.map(Comparison::uncorrected),
            details: details(runs),
            values: of_arm.clone(),
            to_best: None,
        }
    };
    (0..arms.len()).map(row).collect()
}

fn rates(values: &[Value]) -> Vec<f64> {
    values.iter().map(|value| value.operations_per_s).collect()
}

fn values(runs: &[Counted<'_>]) -> Vec<Value> {
    let of = |(record, samples): &Counted<'_>| Value {
        cell: record.cell.number,
        repetition: record.cell.repetition,
        operations_per_s: samples.iter().map(|guest| guest.operations_per_s).sum(),
        is_outlier: false,
    };
    let mut values: Vec<Value> = runs.iter().map(of).collect();
    for far in stats::outliers(&rates(&values)) {
        values[far].is_outlier = true;
    }
    values
}

/// By pairs of the same repetition; as independent runs if fewer than two repetitions have both.
fn compare(arm: &[Value], base: &[Value]) -> Option<Difference> {
    let partner = |value: &Value| base.iter().find(|other| other.repetition == value.repetition);
    let pairs: Vec<(f64, f64)> = arm
        .iter()
        .filter_map(|value| partner(value).map(|other| (value.operations_per_s, other.operations_per_s)))
        .collect();
    compare_paired(&pairs).or_else(|| compare_unpaired(&rates(arm), &rates(base)))
}

/// Corrects the probabilities of all comparisons of one kind for their number, which it gives.
fn correct(groups: &mut [Group], which: impl Fn(&mut Row) -> Option<&mut Comparison>) -> usize {
    let mut all: Vec<&mut Comparison> = groups.iter_mut().flat_map(|group| &mut group.rows).filter_map(which).collect();
    let corrected = stats::holm(&all.iter().map(|one| one.difference.p).collect::<Vec<_>>());
    for (comparison, p) in all.iter_mut().zip(corrected) {
        comparison.p_corrected = p;
        comparison.verdict = comparison.difference.verdict(p);
    }
    all.len()
}

#[expect(clippy::cast_precision_loss, reason = "counts and times of runs of minutes are far below 2^53")]
fn details(runs: &[Counted<'_>]) -> Details {
    let guests = || runs.iter().flat_map(|(_, samples)| samples.iter());
    let vcpus = || guests().flat_map(|guest| &guest.vcpus);
    let sum = |of: fn(&crate::sample::VcpuSample) -> u64| vcpus().map(of).sum::<u64>() as f64;
    let vcpu_seconds: f64 = guests().map(|guest| guest.seconds * guest.vcpus.len() as f64).sum();
    let run_seconds: f64 = runs.iter().filter_map(|(_, samples)| samples.first()).map(|guest| guest.seconds).sum();
    let operations = guests().map(|guest| guest.operations).sum::<u64>() as f64;
    let spin: Option<f64> = guests().map(|guest| guest.spin_seconds).sum();
    let longest = |samples: &[GuestSample]| samples.iter().filter_map(|guest| guest.wait_p99_ns).max();
    let waits: Vec<f64> = runs.iter().filter_map(|(_, samples)| longest(samples)).map(|ns| ns as f64 / 1e3).collect();
    let fair = |(_, samples): &Counted<'_>| {
        let rates: Vec<f64> = samples.iter().map(|guest| guest.operations_per_s).collect();
        if rates.len() > 1 { stats::jain(&rates) } else { None }
    };
    let mut bailed = BTreeMap::new();
    for (reason, count) in vcpus().flat_map(|vcpu| &vcpu.bailed) {
        *bailed.entry(reason.clone()).or_insert(0) += count;
    }
    let (ledger, late) = (ledger(runs), guests().map(|guest| guest.ended_late_us).max().unwrap_or(0));
    Details {
        guests_jain: mean_of(runs.iter().filter_map(fair)),
        vcpus_jain: mean_of(guests().filter_map(|guest| guest.jain)),
        spin_share: spin.and_then(|spin| share(spin, vcpu_seconds)),
        wait_p99_us: stats::quantile(&waits, 0.5),
        steal_share: ledger.get("waiting").copied(),
        events_per_s: share(sum(|vcpu| vcpu.events), run_seconds).unwrap_or(0.0),
        actions_per_operation: share(sum(|vcpu| vcpu.attempted), operations),
        boosted_share: share(sum(|vcpu| vcpu.boosted), sum(|vcpu| vcpu.attempted)),
        bailed,
        ledger,
        ended_late_ms: late as f64 / 1e3,
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn mean_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    Summary::of(&values.collect::<Vec<_>>()).map(|summary| summary.mean)
}

#[expect(clippy::cast_precision_loss, reason = "times of runs of minutes are far below 2^53 ns")]
fn ledger(runs: &[Counted<'_>]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for vcpu in runs.iter().flat_map(|(_, samples)| samples.iter()).flat_map(|guest| &guest.vcpus) {
        for (term, ns) in vcpu.ledger_ns.terms() {
            *sums.entry(term.to_owned()).or_default() += ns as f64;
        }
    }
    let whole: f64 = sums.values().sum();
    if whole <= 0.0 {
        return BTreeMap::new();
    }
    sums.into_iter().map(|(term, ns)| (term, ns / whole)).collect()
}
