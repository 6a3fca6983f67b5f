// SPDX-License-Identifier: Apache-2.0
//! The numbers as tables in Markdown. Pure.

use std::fmt::Write;

use super::asker::Answers;
use super::{ApiArm, ApiBenchPlan, ApiMeasured, Round};
use crate::bench::table::middle;

/// Everything for people.
pub(super) fn render(plan: &ApiBenchPlan, measured: &ApiMeasured) -> String {
    let ApiBenchPlan { milliseconds, rounds, vcpus, pace, .. } = plan;
    let mut text = format!(
        "{rounds} rounds of {milliseconds} ms each; GET /vm while {vcpus} vCPUs run ebizzy, one client on one connection of the \
         Unix socket\n\n| what | answers | a second | p50 | p99 | worst | CPU of the API's thread an answer | of one CPU | bytes |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    );
    for (name, arm) in
        [(format!("GET /vm, {pace} a second"), ApiArm::Paced), ("GET /vm, no break".to_owned(), ApiArm::Busy)]
    {
        let answers: Vec<&Answers> =
            measured.rounds.iter().filter_map(|round| round[arm.index()].answers.as_ref()).collect();
        line(&mut text, &name, &answers);
    }
    line(&mut text, "GET /metrics of 255 halted vCPUs, 10 a second", &[&measured.scrapes]);
    text.push_str("\n| guest | operations a second, median | to no API in the same round: median (least to most) |\n|---|---|---|\n");
    for (name, arm) in [
        ("no API".to_owned(), ApiArm::Without),
        ("an API that nobody asks".to_owned(), ApiArm::Idle),
        (format!("asked {pace} times a second"), ApiArm::Paced),
        ("asked without a break".to_owned(), ApiArm::Busy),
    ] {
        let rate = |round: &Round, arm: ApiArm| round[arm.index()].rate;
        let rates = measured.rounds.iter().map(|round| rate(round, arm)).collect();
        let ratios: Vec<f64> =
            measured.rounds.iter().map(|round| rate(round, arm) / rate(round, ApiArm::Without).max(1.0)).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {name} | {:.0} | {:.3} ({least:.3} to {most:.3}) |", middle(rates), middle(ratios));
    }
    text
}

fn line(text: &mut String, name: &str, answers: &[&Answers]) {
    let mut all: Vec<f64> = answers.iter().flat_map(|one| one.latency_us.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    let per_s = middle(answers.iter().map(|one| one.per_s).collect());
    let cpu = middle(answers.iter().filter_map(|one| one.cpu_us).collect());
    let bytes = answers.last().map_or(0, |one| one.bytes);
    let _ = writeln!(
        text,
        "| {name} | {} | {per_s:.0} | {:.0} us | {:.0} us | {:.0} us | {cpu:.1} us | {:.2} % | {bytes} |",
        all.len(),
        at(&all, 0.50),
        at(&all, 0.99),
        at(&all, 1.0),
        cpu * per_s / 1e4
    );
}

/// The value that the share `part` of sorted values does not exceed; 0 of none.
fn at(sorted: &[f64], part: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::api::ApiSample;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((at(&values, 0.5), at(&values, 0.99), at(&values, 1.0), at(&[], 0.5)), (100.0, 198.0, 200.0, 0.0));
    }

    #[test]
    fn throughput_is_compared_in_the_round() {
        let answers = Answers { latency_us: vec![50.0, 70.0], per_s: 100.0, cpu_us: Some(9.0), bytes: 300 };
        let sample = |rate, asked: bool| ApiSample { rate, answers: asked.then(|| answers.clone()) };
        let round =
            |without, busy| [sample(without, false), sample(without, false), sample(without, true), sample(busy, true)];
        let measured = ApiMeasured { rounds: vec![round(100.0, 80.0), round(200.0, 180.0)], scrapes: answers.clone() };
        let plan = ApiBenchPlan { milliseconds: 5, rounds: 2, vcpus: 32, pace: 1000, json: None };
        let text = render(&plan, &measured);
        assert!(text.contains("| asked without a break | 130 | 0.850 (0.800 to 0.900) |"), "{text}");
        assert!(
            text.contains("| GET /vm, no break | 4 | 100 | 50 us | 70 us | 70 us | 9.0 us | 0.09 % | 300 |"),
            "{text}"
        );
    }
}
