// SPDX-License-Identifier: Apache-2.0
//! The measured cells as a table in Markdown, and what was to be shown with whether it was. Pure.

use std::fmt::Write;

use super::{Arm, BenchPlan, Measured, Sample};

/// At least this share of the best fixed mechanism.
const SHARE_OF_BEST: f64 = 0.95;
/// At least this share of no handling, where every vCPU has a CPU.
const SHARE_OF_OFF: f64 = 0.99;
/// At most so many actions for a hand-over.
const MOST_YIELDS: f64 = 1.10;

/// The median of a number over samples; 0 without any.
pub(super) fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    middle(samples.iter().map(of).collect())
}

/// The median; 0 of nothing.
pub(super) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => values[n / 2],
        _ => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

fn samples(measured: &Measured, arm: Arm) -> &[Sample] {
    measured.arms.iter().find(|(one, _)| *one == arm).map_or(&[], |(_, samples)| samples)
}

/// The median of the ratios of paired runs.
fn paired(measured: &Measured, above: Arm, below: Arm) -> f64 {
    let pairs = samples(measured, above).iter().zip(samples(measured, below));
    middle(pairs.map(|(a, b)| if b.rate > 0.0 { a.rate / b.rate } else { f64::INFINITY }).collect())
}

/// The fixed mechanism with the highest median.
fn best_fixed(measured: &Measured) -> Arm {
    let rate = |arm: &Arm| median(samples(measured, *arm), |one| one.rate);
    [Arm::Off, Arm::Yield, Arm::Park].into_iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(Arm::Off)
}

/// Everything for people.
pub(super) fn render(measured: &[Measured], plan: &BenchPlan) -> String {
    let mut text = format!(
        "{} runs of {} ms each, arms taking turns; median (least to most) of operations a second\n\n",
        plan.runs, plan.milliseconds
    );
    text.push_str(
        "| cell | off | yield | park | act | act / best fixed | act / off | yields per operation | bailed |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for cell in measured {
        row(&mut text, cell);
    }
    if measured.iter().any(|cell| cell.cell.workload != "ring") {
        text.push_str(
            "\n| cell | arm | spin, share of vCPU time | Jain | p99 of the wait, us |\n|---|---|---|---|---|\n",
        );
        for cell in measured.iter().filter(|cell| cell.cell.workload != "ring") {
            waits(&mut text, cell);
        }
    }
    text.push('\n');
    for line in measured.iter().flat_map(verdicts) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn row(text: &mut String, cell: &Measured) {
    let _ = write!(text, "| {}", cell.cell.name());
    for arm in Arm::ALL {
        let all = samples(cell, *arm);
        let least = all.iter().map(|one| one.rate).fold(f64::INFINITY, f64::min);
        let most = all.iter().map(|one| one.rate).fold(0.0, f64::max);
        let _ = write!(text, " | {:.0} ({least:.0}–{most:.0})", median(all, |one| one.rate));
    }
    let best = best_fixed(cell);
    let act = samples(cell, Arm::Act);
    let _ = writeln!(
        text,
        " | {:.2} ({best}) | {:.2} | {:.2} | {:.1} % |",
        paired(cell, Arm::Act, best),
        paired(cell, Arm::Act, Arm::Off),
        median(act, |one| one.yields_per_operation),
        100.0 * median(act, bailed_share)
    );
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run of seconds are far below 2^53")]
fn bailed_share(sample: &Sample) -> f64 {
    if sample.events == 0 { 0.0 } else { sample.bailed as f64 / sample.events as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "a wait is far below 2^53 ns")]
fn waits(text: &mut String, cell: &Measured) {
    for (arm, samples) in &cell.arms {
        let of = |one: &Sample| one.wait_p99_ns.unwrap_or(0) as f64 / 1e3;
        let jain = samples.iter().all(|one| one.jain.is_some());
        let jain =
            if jain { format!("{:.3}", median(samples, |one| one.jain.unwrap_or(0.0))) } else { "–".to_owned() };
        let _ = writeln!(
            text,
            "| {} | {arm} | {:.3} | {jain} | {:.0} |",
            cell.cell.name(),
            median(samples, |one| one.spin_share.unwrap_or(0.0)),
            median(samples, of)
        );
    }
}

/// What was to be shown, and whether it was.
fn verdicts(cell: &Measured) -> Vec<String> {
    let name = cell.cell.name();
    let verdict = |holds: bool, what: String| format!("{}: {name}: {what}", if holds { "met" } else { "MISSED" });
    let act = samples(cell, Arm::Act);
    let against_off = paired(cell, Arm::Act, Arm::Off);
    let best = best_fixed(cell);
    let against_best = paired(cell, Arm::Act, best);
    let mut lines = Vec::new();
    if cell.cell.is_undercommitted() {
        let what = format!("act is {against_off:.3} of off, goal {SHARE_OF_OFF}");
        lines.push(verdict(against_off >= SHARE_OF_OFF, what));
    } else if cell.cell.workload == "ring" {
        let what = format!("act is {against_best:.2} of the best fixed mechanism ({best}), goal {SHARE_OF_BEST}");
        lines.push(verdict(against_best >= SHARE_OF_BEST, what));
        if cell.cell.cpus.len() == 1 {
            let yields = median(act, |one| one.yields_per_operation);
            lines.push(verdict(
                yields <= MOST_YIELDS,
                format!("{yields:.2} yields per hand-over, goal {MOST_YIELDS:.2}"),
            ));
        }
        if cell.cell.cpus.len() == 1 && cell.cell.vcpus == 8 {
            lines.push(verdict(against_off >= 50.0, format!("act is {against_off:.0} times off, goal 50")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use topology::id::HostCpu;

    use super::*;
    use crate::bench::Cell;

    fn measured(vcpus: u32, rates: [f64; 4]) -> Measured {
        let cell = Cell { workload: "ring", vcpus, cpus: vec![HostCpu(0)] };
        let sample = |rate| vec![Sample { rate, yields_per_operation: 1.0, ..Sample::default() }; 3];
        Measured { cell, arms: Arm::ALL.iter().copied().zip(rates.map(sample)).collect() }
    }

    #[test]
    fn goals_are_judged_by_paired_ratios() {
        let good = verdicts(&measured(8, [100.0, 4000.0, 9000.0, 9100.0]));
        assert_eq!(good.len(), 3);
        assert!(good.iter().all(|line| line.starts_with("met: ring 8/1: ")), "{good:?}");
        let bad = verdicts(&measured(8, [1000.0, 4000.0, 9000.0, 8000.0]));
        assert_eq!(bad.iter().filter(|line| line.starts_with("MISSED")).count(), 2, "{bad:?}");
        assert!(verdicts(&measured(1, [100.0, 1.0, 1.0, 98.0]))[0].starts_with("MISSED"));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 3.0]).total_cmp(&2.5), std::cmp::Ordering::Equal);
        assert_eq!(middle(Vec::new()).total_cmp(&0.0), std::cmp::Ordering::Equal);
    }
}
