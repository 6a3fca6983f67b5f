// SPDX-License-Identifier: Apache-2.0
//! `vmm bench placement`: the same guest with `--placement auto` and with less than that: with `none`, or without one rule. By
//! default beside a task that keeps one CPU busy, to see for how long vCPUs wait for a CPU.
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
use crate::config::RulesOff;
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
    /// The probe guest's workload, with its words.
    pub workload: String,
    /// The rules that the other arm is without; `None`: it is `--placement none`.
    pub off: Option<RulesOff>,
    /// Whether another task keeps a CPU busy.
    pub busy: bool,
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
    /// With less.
    pub other: WaitSample,
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
        let pair = if plan.busy { beside(busy, || pair(plan, number)) } else { pair(plan, number) }?;
        // Progress is for whoever watches; a closed stderr has nobody.
        let _ = writeln!(
            io::stderr(),
            "[{}/{}] waiting: auto {:.1} %, {} {:.1} %; a second: {:.0}, {:.0}",
            number + 1,
            plan.pairs,
            pair.auto.waiting * 100.0,
            plan.other(),
            pair.other.waiting * 100.0,
            pair.auto.rate,
            pair.other.rate
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

impl PlacementBenchPlan {
    /// The name of the other arm.
    fn other(&self) -> String {
        self.off.as_ref().map_or_else(|| "none".to_owned(), |off| format!("without {off}"))
    }
}

fn pair(plan: &PlacementBenchPlan, number: u32) -> Result<WaitPair, ChildError> {
    if number.is_multiple_of(2) {
        let auto = run(plan, true)?;
        Ok(WaitPair { auto, other: run(plan, false)? })
    } else {
        let other = run(plan, false)?;
        Ok(WaitPair { auto: run(plan, true)?, other })
    }
}

fn run(plan: &PlacementBenchPlan, all: bool) -> Result<WaitSample, ChildError> {
    let name = if all { "auto".to_owned() } else { plan.other() };
    let probe = format!("{} seconds={} report=none", plan.workload, seconds(plan.milliseconds));
    let off = plan.off.as_ref().map(ToString::to_string);
    let (mode, off) = match (all, &off) {
        (false, Some(off)) => ("auto", Some(["--placement-off", off])),
        (false, None) => ("none", None),
        (true, Some(_)) => ("auto", Some(["--placement-off", "none"])),
        (true, None) => ("auto", None),
    };
    let mut arguments = vec!["--cpus".to_owned(), plan.vcpus.to_string(), "--placement".to_owned(), mode.to_owned()];
    arguments.extend(off.into_iter().flatten().map(str::to_owned));
    arguments.extend(["--probe".to_owned(), probe]);
    Ok(sample(&report_of(&name, &arguments, plan.milliseconds)?))
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
    let PlacementBenchPlan { vcpus, milliseconds, workload, .. } = plan;
    let busy = if plan.busy { format!(", CPU {busy} kept busy by another task") } else { String::new() };
    let mut text = format!(
        "{workload} on {vcpus} vCPUs and {cpus} CPUs{busy}; {} pairs of {milliseconds} ms; mean ± standard deviation\n\n\
         | | auto | {other} | auto - {other}, paired | auto lower in |\n|---|---|---|---|---|\n",
        pairs.len(),
        other = plan.other(),
    );
    let percent = |name: &str, of: fn(&WaitSample) -> f64, text: &mut String| {
        row(text, name, (pairs, &|sample| of(sample) * 100.0), " %");
    };
    percent("waiting, all vCPUs", |sample| sample.waiting, &mut text);
    percent("waiting, the vCPU that waits most", |sample| sample.worst, &mut text);
    row(&mut text, "operations, thousands a second", (pairs, &|sample| sample.rate / 1e3), "");
    text
}

type Of<'a> = &'a dyn Fn(&WaitSample) -> f64;

fn row(text: &mut String, name: &str, (pairs, of): (&[WaitPair], Of<'_>), unit: &str) {
    let column = |one: &dyn Fn(&WaitPair) -> f64| pairs.iter().map(one).collect::<Vec<f64>>();
    let auto = spread(&column(&|pair| of(&pair.auto)));
    let other = spread(&column(&|pair| of(&pair.other)));
    let differences = column(&|pair| of(&pair.auto) - of(&pair.other));
    let paired = spread(&differences);
    let lower = differences.iter().filter(|difference| **difference < 0.0).count();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "| {name} | {:.2} ± {:.2}{unit} | {:.2} ± {:.2}{unit} | {:+.2} ± {:.2} | {lower} of {} |",
        auto.0,
        auto.1,
        other.0,
        other.1,
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
            auto: WaitSample { waiting: auto, worst: auto, rate: 2e3 },
            other: WaitSample { waiting: none, worst: none, rate: 1e3 },
        };
        let plan = PlacementBenchPlan {
            milliseconds: 100,
            pairs: 2,
            vcpus: 2,
            workload: "spin".to_owned(),
            off: None,
            busy: true,
            json: None,
        };
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
