// SPDX-License-Identifier: Apache-2.0
//! `vmm bench api`: how fast a machine answers while its vCPUs run, what an answer costs, and what the guest loses by it.
//!
//! The arms of a round run one after the other and take turns in going first: no API, an API that nobody asks, one that is
//! asked at a pace, one that is asked as fast as it answers. Invariant: every machine has a deadline, and is ended by its handle.

mod asker;
mod table;

use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;

use super::child::{ScratchFile, report_of, seconds};
use super::{BenchError, ChildError};
use asker::{Answers, Pace};

/// What is measured, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiBenchPlan {
    /// How long each run works, in milliseconds.
    pub milliseconds: u32,
    /// Rounds, each with one run of every arm.
    pub rounds: u32,
    /// vCPUs.
    pub vcpus: u32,
    /// Requests a second of the arm that is asked at a pace.
    pub pace: u32,
    /// Where all numbers are written as JSON.
    pub json: Option<PathBuf>,
}

/// How a machine is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiArm {
    /// It has no API.
    Without,
    /// Nobody asks.
    Idle,
    /// `GET /vm`, at a pace.
    Paced,
    /// `GET /vm`, each as soon as the one before is answered.
    Busy,
}

impl ApiArm {
    const ALL: [Self; 4] = [Self::Without, Self::Idle, Self::Paced, Self::Busy];

    /// Of the arm's place in [`Round`].
    const fn index(self) -> usize {
        match self {
            Self::Without => 0,
            Self::Idle => 1,
            Self::Paced => 2,
            Self::Busy => 3,
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ApiSample {
    /// Operations of the guest a second.
    pub rate: f64,
    /// What was answered; nothing where nobody asked.
    pub answers: Option<Answers>,
}

/// One run of every arm, in the order of [`ApiArm::ALL`].
pub type Round = [ApiSample; 4];

/// All numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiMeasured {
    /// The rounds.
    pub rounds: Vec<Round>,
    /// Scrapes of a machine of 255 vCPUs that are halted.
    pub scrapes: Answers,
}

/// Measures, tells progress on stderr, and gives the table.
///
/// # Errors
/// [`BenchError`].
pub fn api(plan: &ApiBenchPlan) -> Result<String, BenchError> {
    let mut rounds = Vec::new();
    for number in 0..plan.rounds {
        let mut round = Round::default();
        for turn in 0..ApiArm::ALL.len() {
            let arm = ApiArm::ALL[(number as usize + turn) % ApiArm::ALL.len()];
            round[arm.index()] = run(plan, arm)?;
        }
        let rates = ApiArm::ALL.map(|arm| format!("{:.0}", round[arm.index()].rate)).join(", ");
        // Progress is for whoever watches; a closed stderr has nobody.
        let _ = writeln!(io::stderr(), "[{}/{}] operations/s: {rates}", number + 1, plan.rounds);
        rounds.push(round);
    }
    let measured = ApiMeasured { rounds, scrapes: scrapes(plan)? };
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(&measured).map_err(io::Error::other);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|source| BenchError::Output { what: path.display().to_string(), source })?;
    }
    Ok(table::render(plan, &measured))
}

fn run(plan: &ApiBenchPlan, arm: ApiArm) -> Result<ApiSample, ChildError> {
    let probe = format!("ebizzy seconds={} report=none", seconds(plan.milliseconds));
    let arguments = ["--cpus", &plan.vcpus.to_string(), "--probe", &probe].map(str::to_owned);
    let asked = match arm {
        ApiArm::Without => {
            return Ok(ApiSample { rate: rate(&report_of("no API", &arguments, plan.milliseconds)?), answers: None });
        }
        ApiArm::Idle => None,
        ApiArm::Paced => Some(Pace::Every(plan.pace)),
        ApiArm::Busy => Some(Pace::AtOnce),
    };
    let (report, answers) = beside("/api/v1/vm", asked, &arguments, plan.milliseconds)?;
    Ok(ApiSample { rate: rate(&report), answers })
}

fn rate(report: &crate::report::Report) -> f64 {
    report.workload.as_ref().map_or(0.0, |workload| workload.operations_per_s)
}

/// Runs a machine, and asks it meanwhile.
fn beside(
    path: &str,
    pace: Option<Pace>,
    arguments: &[String],
    milliseconds: u32,
) -> Result<(crate::report::Report, Option<Answers>), ChildError> {
    let socket = ScratchFile::new("sock");
    let name = socket.path().display().to_string();
    let all = [arguments, &["--api-sock".to_owned(), name]].concat();
    let at = socket.path();
    std::thread::scope(|scope| {
        let asking = pace.map(|pace| scope.spawn(move || asker::ask(at, path, pace, milliseconds)));
        let report = report_of(path, &all, milliseconds)?;
        let answers = asking.map(|asking| match asking.join() {
            Ok(answers) => answers.map_err(|source| ChildError::Start { run: path.to_owned(), source }),
            Err(_) => Err(ChildError::Start { run: path.to_owned(), source: io::ErrorKind::Other.into() }),
        });
        Ok((report, answers.transpose()?))
    })
}

/// A scrape each tenth of a second, as no Prometheus would ask so often.
fn scrapes(plan: &ApiBenchPlan) -> Result<Answers, ChildError> {
    let milliseconds = plan.milliseconds.max(1000);
    let probe = format!("idle seconds={} report=none", seconds(milliseconds));
    let arguments = ["--cpus", "255", "--probe", &probe].map(str::to_owned);
    let (_, answers) = beside("/metrics", Some(Pace::Every(10)), &arguments, milliseconds)?;
    Ok(answers.unwrap_or_default())
}
