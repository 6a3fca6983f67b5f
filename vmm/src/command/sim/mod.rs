// SPDX-License-Identifier: Apache-2.0
//! `vmm sim`: runs scenarios on the simulated host and shows what they brought. Needs no KVM.
//!
//! The simulator is pure; files, the terminal and the choice of what to print are here. Invariant: a file that cannot be
//! written is an error, never a missing result.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::sim::page;
use ::sim::scenario::ScenarioError;
use ::sim::sweep::SweepError;
use topology::host::{Capture, HostError, HostTopology};

use crate::config::{SimArgs, SimTask};
use crate::report::ExitStatus;

mod attack;
mod compare;
mod pool;
mod sweep;

/// The simulation cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum SimCommandError {
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The scenario is wrong.
    #[error("{path}: {source}")]
    Scenario {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ScenarioError,
    },
    /// The sweep is wrong.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The captured host that it names is wrong.
    #[error("{path}: {source}")]
    Host {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: HostError,
    },
    /// A log of decisions is wanted of an arm that decides nothing.
    #[error("the last arm asks no policy, so there are no decisions to log: choose another with --policy")]
    NoPolicy,
    /// There is no such arm.
    #[error("the scenario has no arm `{wanted}`; it has {known}")]
    NoSuchArm {
        /// What was asked for.
        wanted: String,
        /// Those there are.
        known: String,
    },
    /// There is no such case.
    #[error("the scenario has no case `{wanted}`; it has {known}")]
    NoSuchCase {
        /// What was asked for.
        wanted: String,
        /// Those there are.
        known: String,
    },
    /// JSON.
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl SimCommandError {
    /// The exit status: a file or an arm that is wrong is the user's fault.
    #[must_use]
    pub(super) const fn status(&self) -> ExitStatus {
        match self {
            Self::Read { .. }
            | Self::Sweep(_)
            | Self::Scenario { .. }
            | Self::Host { .. }
            | Self::NoSuchArm { .. }
            | Self::NoSuchCase { .. }
            | Self::NoPolicy => ExitStatus::Usage,
            Self::Write { .. } | Self::Json(_) => ExitStatus::MonitorError,
        }
    }
}

/// Runs the scenario; the text for standard output.
///
/// # Errors
/// [`SimCommandError`].
pub(super) fn run(args: &SimArgs) -> Result<String, SimCommandError> {
    match (&args.task, &args.scenario) {
        (Some(SimTask::Sweep(args)), _) => sweep::run(args),
        (Some(SimTask::Attack(args)), _) => attack::run(args),
        (None, Some(scenario)) => compare::run(args, scenario),
        (None, None) => Ok(String::new()),
    }
}

/// The host that a scenario names: `NAME.txt` in the directory `hosts` beside that of the scenario.
fn captured(scenario: &Path, name: &str) -> Result<HostTopology, SimCommandError> {
    let directory = scenario.parent().unwrap_or(Path::new(""));
    let path = directory.join("../hosts").join(format!("{name}.txt"));
    let text = read(&path)?;
    let host = Capture::parse(&text).and_then(|capture| HostTopology::from_capture(&capture));
    host.map_err(|source| SimCommandError::Host { path, source })
}

/// Writes a picture: alone, or in a page with its table if the name says HTML.
fn draw(path: &Path, title: &str, svg: &str, table: &str) -> Result<(), SimCommandError> {
    let is_page = path.extension().is_some_and(|end| end == "html" || end == "htm");
    if is_page { write(path, page::html(title, svg, table).as_bytes()) } else { write(path, svg.as_bytes()) }
}

fn read(path: &Path) -> Result<String, SimCommandError> {
    fs::read_to_string(path).map_err(|source| SimCommandError::Read { path: path.to_path_buf(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SimCommandError> {
    fs::write(path, bytes).map_err(|source| SimCommandError::Write { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use ::sim::sweep::Axis;

    use super::*;
    use crate::config::SweepArgs;

    fn args(scenario: PathBuf) -> SimArgs {
        SimArgs {
            task: None,
            scenario: Some(scenario),
            seed: 1,
            runs: 1,
            policy: None,
            case: None,
            set: Vec::new(),
            json: false,
            chart: None,
            timeline: None,
            decision_log: None,
        }
    }

    fn scenarios() -> Vec<PathBuf> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../resources/scenarios");
        let files = fs::read_dir(directory).expect("there are scenarios").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
        files.sort();
        files
    }

    #[test]
    fn every_scenario_of_the_tree_runs() {
        assert!(scenarios().len() >= 3);
        for path in scenarios() {
            let short = SimArgs { set: vec![("duration".into(), "\"3ms\"".into())], ..args(path.clone()) };
            let text = run(&short).unwrap_or_else(|error| panic!("{error}"));
            assert!(text.contains("operations/s"), "{}: {text}", path.display());
        }
    }

    #[test]
    fn a_report_a_chart_and_a_timeline_are_written() {
        let directory = std::env::temp_dir().join(format!("vmm-sim-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let (chart, timeline) = (directory.join("a.svg"), directory.join("a.json"));
        let first = scenarios().first().expect("one").clone();
        let all = SimArgs {
            json: true,
            chart: Some(chart.clone()),
            timeline: Some(timeline.clone()),
            set: vec![("duration".into(), "\"3ms\"".into())],
            ..args(first)
        };
        let report: serde_json::Value = serde_json::from_str(&run(&all).expect("a report")).expect("JSON");
        assert!(report["rows"][0]["cells"][0]["measure"]["mean"].is_number(), "{report}");
        let events: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(timeline).expect("written")).expect("JSON");
        assert!(events.as_array().is_some_and(|events| !events.is_empty()));
        assert!(fs::read_to_string(chart).expect("written").starts_with("<svg"));
        fs::remove_dir_all(directory).expect("it was there");
    }

    #[test]
    fn a_sweep_ranks_settings_and_draws_a_page() {
        let page = std::env::temp_dir().join(format!("vmm-sweep-{}.html", std::process::id()));
        let axis = |key: &str, values: &[&str]| Axis {
            key: key.into(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
        };
        let first = scenarios().first().expect("one").clone();
        let sweep = SweepArgs {
            scenarios: vec![first.clone()],
            vary: vec![axis("arm.after", &["10us", "100us"])],
            under: vec![axis("duration", &["3ms"]), axis("vm.0.vcpus", &["2", "3"])],
            policy: None,
            seed: 1,
            runs: 1,
            json: true,
            chart: Some(page.clone()),
        };
        let sweep = SimArgs { task: Some(SimTask::Sweep(sweep)), ..args(first) };
        let report: serde_json::Value = serde_json::from_str(&run(&sweep).expect("a report")).expect("JSON");
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(3), "{report}");
        assert_eq!(report["cases"].as_array().map(Vec::len), Some(2), "{report}");
        let drawn = fs::read_to_string(&page).expect("written");
        assert!(drawn.starts_with("<!DOCTYPE html>") && drawn.contains("<svg") && drawn.contains("arm.after=100us"));
        fs::remove_file(page).expect("it was there");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let absent = run(&args("/absent.toml".into())).expect_err("absent").to_string();
        assert!(absent.contains("/absent.toml cannot be read"), "{absent}");
        let first = scenarios().first().expect("one").clone();
        let arm = SimArgs { policy: Some("fast".into()), ..args(first.clone()) };
        let text = run(&arm).expect_err("no such arm").to_string();
        assert!(text.contains("no arm `fast`; it has `"), "{text}");
        let set = SimArgs { set: vec![("duration".into(), "5".into())], ..args(first) };
        let text = run(&set).expect_err("no unit").to_string();
        assert!(text.contains("--set duration"), "{text}");
    }
}
