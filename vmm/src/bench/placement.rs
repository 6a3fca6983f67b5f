// SPDX-License-Identifier: Apache-2.0
//! `vmm bench placement`: time that vCPUs wait for a CPU beside a task that keeps one CPU busy, with placement and without.
//!
//! The two arms of a pair run one after the other, and take turns in going first. Invariant: the busy task stays on its CPU
//! for as long as a pair runs, and ends with it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::Serialize;
use topology::id::HostCpu;

use super::child::{report_of, seconds};
use super::{BenchError, ChildError};
use crate::host::affinity;
use crate::report::Report;

/// What is measured, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementBenchPlan {
    /// How long each run works, in milliseconds.
    pub milliseconds: u32,
    /// Pairs of runs.
    pub pairs: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// Where all numbers are written as JSON.
    pub json: Option<PathBuf>,
}

/// What one run brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitSample {
    /// Time waited for a CPU, of all vCPUs, as a share of the time of all.
    pub waiting: f64,
    /// The same for the vCPU that waited most.
    pub worst: f64,
    /// Work done, per second.
    pub rate: f64,
}

/// Both runs of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WaitPair {
    /// With `--placement auto`.
    pub auto: WaitSample,
    /// With `--placement none`.
    pub none: WaitSample,
}

/// Measures, tells progress on stderr, and gives the table.
///
/// # Errors
/// [`BenchError`].
pub fn placement(plan: &PlacementBenchPlan) -> Result<String, BenchError> {
    let cpus = affinity::of_this_thread().map_err(BenchError::Affinity)?;
    let busy = cpus.lowest().ok_or_else(|| BenchError::Affinity(io::ErrorKind::NotFound.into()))?;
    let mut pairs = Vec::new();
    for number in 0..plan.pairs {
        let pair = beside(busy, || pair(plan, number))?;
        // Progress is for whoever watches; a closed stderr has nobody.
        let _ = writeln!(
            io::stderr(),
            "[{}/{}] waiting: auto {:.1} %, none {:.1} %",
            number + 1,
            plan.pairs,
            pair.auto.waiting * 100.0,
            pair.none.waiting * 100.0
        );
        pairs.push(pair);
    }
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(&pairs).map_err(io::Error::other);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|source| BenchError::Output { what: path.display().to_string(), source })?;
    }
    Ok(table(plan, (busy, cpus.len()), &pairs))
}

/// Does something beside a thread that keeps `cpu` busy.
fn beside<T>(cpu: HostCpu, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A busy task elsewhere would disturb too; the table names the CPU, so it must be there.
            if affinity::pin_this_thread([cpu]).is_ok() {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

fn pair(plan: &PlacementBenchPlan, number: u32) -> Result<WaitPair, ChildError> {
    let one = |mode: &str| run(plan, mode);
    if number.is_multiple_of(2) {
        let auto = one("auto")?;
        Ok(WaitPair { auto, none: one("none")? })
    } else {
        let none = one("none")?;
        Ok(WaitPair { auto: one("auto")?, none })
    }
}

fn run(plan: &PlacementBenchPlan, mode: &str) -> Result<WaitSample, ChildError> {
    let probe = format!("spin seconds={} report=none", seconds(plan.milliseconds));
    let arguments = ["--cpus", &plan.vcpus.to_string(), "--pause", "kernel", "--placement", mode, "--probe", &probe];
    Ok(sample(&report_of(mode, &arguments.map(str::to_owned), plan.milliseconds)?))
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run of seconds are far below 2^53")]
fn sample(report: &Report) -> WaitSample {
    let share = |waiting_ns: u64, of_ns: u64| waiting_ns as f64 / of_ns.max(1) as f64;
    let each = report.vcpus.iter().map(|vcpu| (vcpu.ledger_ns.waiting, vcpu.run_loop_ns));
    let (waiting, of) = each.clone().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    WaitSample {
        waiting: share(waiting, of),
        worst: each.map(|(waiting, of)| share(waiting, of)).fold(0.0, f64::max),
        rate: report.workload.as_ref().map_or(0.0, |workload| workload.operations_per_s),
    }
}

/// Mean and standard deviation of a sample.
#[expect(clippy::cast_precision_loss, reason = "a number of pairs")]
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

fn table(plan: &PlacementBenchPlan, (busy, cpus): (HostCpu, usize), pairs: &[WaitPair]) -> String {
    let PlacementBenchPlan { vcpus, milliseconds, .. } = plan;
    let mut text = format!(
        "{vcpus} vCPUs on {cpus} CPUs, CPU {busy} kept busy by another task; {} pairs of {milliseconds} ms; mean ± standard \
         deviation\n\n| | auto | none | auto - none, paired | auto lower in |\n|---|---|---|---|---|\n",
        pairs.len()
    );
    let percent = |name: &str, of: fn(&WaitSample) -> f64, text: &mut String| {
        row(text, name, (pairs, &|sample| of(sample) * 100.0), " %");
    };
    percent("waiting, all vCPUs", |sample| sample.waiting, &mut text);
    percent("waiting, the vCPU that waits most", |sample| sample.worst, &mut text);
    row(&mut text, "operations, millions a second", (pairs, &|sample| sample.rate / 1e6), "");
    text
}

type Of<'a> = &'a dyn Fn(&WaitSample) -> f64;

fn row(text: &mut String, name: &str, (pairs, of): (&[WaitPair], Of<'_>), unit: &str) {
    let column = |one: &dyn Fn(&WaitPair) -> f64| pairs.iter().map(one).collect::<Vec<f64>>();
    let auto = spread(&column(&|pair| of(&pair.auto)));
    let none = spread(&column(&|pair| of(&pair.none)));
    let differences = column(&|pair| of(&pair.auto) - of(&pair.none));
    let paired = spread(&differences);
    let lower = differences.iter().filter(|difference| **difference < 0.0).count();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {name} | {:.2} ± {:.2}{unit} | {:.2} ± {:.2}{unit} | {:+.2} ± {:.2} | {lower} of {} |",
        auto.0,
        auto.1,
        none.0,
        none.1,
        paired.0,
        paired.1,
        pairs.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_pairs_its_runs() {
        let pair = |auto, none| WaitPair {
            auto: WaitSample { waiting: auto, worst: auto, rate: 2e6 },
            none: WaitSample { waiting: none, worst: none, rate: 1e6 },
        };
        let plan = PlacementBenchPlan { milliseconds: 100, pairs: 2, vcpus: 2, json: None };
        let text = table(&plan, (HostCpu(0), 2), &[pair(0.1, 0.2), pair(0.3, 0.2)]);
        assert!(text.contains("| 20.00 ± 14.14 % | 20.00 ± 0.00 % | +0.00 ± 14.14 | 1 of 2 |"), "{text}");
        assert!(text.contains("| 2.00 ± 0.00 | 1.00 ± 0.00 | +1.00 ± 0.00 | 0 of 2 |"), "{text}");
    }

    #[test]
    fn the_busy_task_ends_with_the_work() {
        let cpu = affinity::of_this_thread().unwrap().lowest().unwrap();
        assert_eq!(beside(cpu, || 7), 7);
    }
}
