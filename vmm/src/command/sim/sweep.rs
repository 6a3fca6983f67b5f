// SPDX-License-Identifier: Apache-2.0
//! `vmm sim sweep`: one arm of some scenarios under many settings, on all CPUs.

use std::path::Path;

use ::sim::sweep::{Plan, Subject, Sweep};

use super::{SimCommandError, captured, draw, pool, read};
use crate::config::SweepArgs;

/// Runs the sweep; the text for standard output.
pub(super) fn run(args: &SweepArgs) -> Result<String, SimCommandError> {
    let subjects = args.scenarios.iter().map(|path| subject(path)).collect::<Result<Vec<_>, _>>()?;
    let plan = Plan {
        arm: args.policy.clone(),
        axes: args.vary.clone(),
        conditions: args.under.clone(),
        seed: args.seed,
        runs: args.runs.into(),
    };
    let sweep = Sweep::new(&subjects, &plan)?;
    let report = sweep.report(&pool::each(sweep.jobs(), |job| sweep.run(job))?);
    if let Some(path) = &args.chart {
        draw(path, "Throughput against fairness", &report.chart(), &report.table())?;
    }
    Ok(if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.table() })
}

/// A scenario file as the sweep wants it. A wrong file is told here, with its line.
fn subject(path: &Path) -> Result<Subject, SimCommandError> {
    let text = read(path)?;
    let scenario = ::sim::scenario::Scenario::parse(&text)
        .map_err(|source| SimCommandError::Scenario { path: path.to_path_buf(), source })?;
    let captured = scenario.fixture.as_deref().map(|name| captured(path, name)).transpose()?;
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Subject { name, text, captured })
}
