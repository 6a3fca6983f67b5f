// SPDX-License-Identifier: Apache-2.0
//! `vmm sim SCENARIO`: the arms of a scenario against each other, in each of its cases.
//!
//! Invariant: every arm of every case sees the same seeds, and what is drawn and recorded is of the very runs shown.

use std::path::Path;

use ::sim::engine::{Outcome, Trace, World};
use ::sim::host::HostModel;
use ::sim::scenario::{Case, CaseReport, CasesReport, Report, Scenario, ScenarioError};
use ::sim::timeline;

use super::{SimCommandError, captured, draw, pool, read, write};
use crate::config::SimArgs;

/// Events of a timeline: what a viewer shows without effort.
const MOST_EVENTS: usize = 1_000_000;

/// Runs the arms of one scenario; the text for standard output.
pub(super) fn run(args: &SimArgs, path: &Path) -> Result<String, SimCommandError> {
    let text = read(path)?;
    let wrong = |source| SimCommandError::Scenario { path: path.to_path_buf(), source };
    let mut cases = Scenario::cases(&text, &args.set).map_err(wrong)?;
    if let Some(wanted) = &args.case {
        keep_case(&mut cases, wanted)?;
    }
    if let Some(wanted) = &args.policy {
        cases.iter_mut().try_for_each(|case| keep_arm(&mut case.scenario, wanted))?;
    }
    let hosts = cases.iter().map(|case| host(path, &case.scenario)).collect::<Result<Vec<_>, _>>()?;
    let reports = reports(args, &cases, &hosts).map_err(wrong)?;
    if let (Some(case), Some(host)) = (cases.first(), hosts.first()) {
        keep_record(args, path, &case.scenario, host)?;
    }
    show(args, cases, reports)
}

/// What all arms of all cases brought.
fn reports(args: &SimArgs, cases: &[Case], hosts: &[HostModel]) -> Result<Vec<Report>, ScenarioError> {
    let runs = usize::from(args.runs);
    let jobs: Vec<(usize, usize, u64)> = (0..cases.len())
        .flat_map(|case| (0..cases[case].scenario.arms.len()).map(move |arm| (case, arm)))
        .flat_map(|(case, arm)| (0..runs).map(move |run| (case, arm, args.seed.wrapping_add(run as u64))))
        .collect();
    let run = |job: usize| {
        let (case, arm, seed) = jobs[job];
        let scenario = &cases[case].scenario;
        scenario.once(&hosts[case], &scenario.arms[arm], seed)
    };
    let mut outcomes: Vec<Outcome> = pool::each(jobs.len(), run)?;
    Ok(cases
        .iter()
        .map(|case| {
            let later = outcomes.split_off(case.scenario.arms.len() * runs);
            case.scenario.report(args.seed, &std::mem::replace(&mut outcomes, later))
        })
        .collect())
}

/// Draws and prints: a scenario without cases as its one report, any other as the reports of its cases.
fn show(args: &SimArgs, cases: Vec<Case>, reports: Vec<Report>) -> Result<String, SimCommandError> {
    let title = reports.first().map_or_else(String::new, |report| report.title.clone());
    let several = cases.iter().any(|case| !case.name.is_empty());
    if let Some(report) = reports.first().filter(|_| !several) {
        if let Some(path) = &args.chart {
            draw(path, &title, &report.chart(), &report.table())?;
        }
        return Ok(if args.json { serde_json::to_string_pretty(report)? + "\n" } else { report.table() });
    }
    let one = |(case, report): (Case, Report)| CaseReport { name: case.name, told: case.told, report };
    let all = CasesReport { cases: cases.into_iter().zip(reports).map(one).collect(), title };
    if let Some(path) = &args.chart {
        draw(path, &all.title, &all.chart(), &all.table())?;
    }
    Ok(if args.json { serde_json::to_string_pretty(&all)? + "\n" } else { all.table() })
}

fn host(path: &Path, scenario: &Scenario) -> Result<HostModel, SimCommandError> {
    let captured = scenario.fixture.as_deref().map(|name| captured(path, name)).transpose()?;
    scenario.host(captured).map_err(|source| SimCommandError::Scenario { path: path.to_path_buf(), source })
}

fn keep_arm(scenario: &mut Scenario, wanted: &str) -> Result<(), SimCommandError> {
    let names: Vec<String> = scenario.arms.iter().map(|arm| format!("`{}`", arm.name)).collect();
    scenario.arms.retain(|arm| arm.name == wanted);
    if scenario.arms.is_empty() {
        return Err(SimCommandError::NoSuchArm { wanted: wanted.to_owned(), known: names.join(", ") });
    }
    Ok(())
}

fn keep_case(cases: &mut Vec<Case>, wanted: &str) -> Result<(), SimCommandError> {
    let names: Vec<String> = cases.iter().map(|case| format!("`{}`", case.name)).collect();
    cases.retain(|case| case.name == wanted);
    if cases.is_empty() {
        return Err(SimCommandError::NoSuchCase { wanted: wanted.to_owned(), known: names.join(", ") });
    }
    Ok(())
}

/// Writes the timeline and the decision log that were asked for, of the last arm with the first seed.
fn keep_record(args: &SimArgs, path: &Path, scenario: &Scenario, host: &HostModel) -> Result<(), SimCommandError> {
    if args.timeline.is_none() && args.decision_log.is_none() {
        return Ok(());
    }
    let wrong = |source| SimCommandError::Scenario { path: path.to_path_buf(), source };
    let world = record(scenario, host, args.seed).map_err(wrong)?;
    if let Some(path) = &args.timeline {
        let lines = path.extension().is_some_and(|end| end == "txt");
        let (trace, names) = (world.trace(), world.task_names());
        let text =
            if lines { timeline::text(trace, &names) } else { timeline::chrome(trace, &names, scenario.duration_ns) };
        write(path, text.as_bytes())?;
    }
    if let Some(path) = &args.decision_log {
        write(path, world.decision_log(0).ok_or(SimCommandError::NoPolicy)?)?;
    }
    Ok(())
}

/// One run of the last arm, with its trace and the log of its decisions.
fn record(scenario: &Scenario, host: &HostModel, seed: u64) -> Result<World, ScenarioError> {
    let arm = scenario.arms.last().expect("invariant: a scenario has an arm");
    let mut world = scenario.world(host, arm, seed, Trace::new(MOST_EVENTS))?;
    world.keep_logs();
    world.run_until(scenario.duration_ns)?;
    Ok(world)
}
