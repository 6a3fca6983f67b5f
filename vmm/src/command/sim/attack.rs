// SPDX-License-Identifier: Apache-2.0
//! `vmm sim attack`: looks for scenarios where acting is worse than not acting, and makes the worst of them small.
//!
//! Invariant: what is kept loses what is said in its file, with the seeds that are said to have found it.

use std::fmt::Write as _;

use ::sim::adversary::{Draft, loss, loss_against};
use ::sim::scenario::{Scenario, ScenarioError};

use super::{SimCommandError, pool, write};
use crate::config::AttackArgs;

/// Part of its loss that a smaller scenario must keep.
const KEPT: f64 = 0.8;

/// A draft and what acting loses in it, in per cent: against the kernel alone, and against PAUSE exits that are off.
struct Found {
    draft: Draft,
    percent: f64,
    against_off: Option<f64>,
}

impl Found {
    fn words(&self) -> String {
        let against_off = self.against_off.map(|off| format!(", {off:.1} % against `off`"));
        format!("{:.1} % lost{}", self.percent, against_off.unwrap_or_default())
    }
}

/// Runs the search; the text for standard output.
pub(super) fn run(args: &AttackArgs) -> Result<String, SimCommandError> {
    let drafts: Vec<Draft> = (0..args.candidates).map(|at| Draft::random(args.seed.wrapping_add(at.into()))).collect();
    let mut found: Vec<Found> = measured(&drafts, 1)?.into_iter().filter(|one| one.percent > args.least).collect();
    found.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let losers = found.len();
    let mut text = format!("{losers} of {} candidates lose more than {} %\n", args.candidates, args.least);
    for (at, one) in found.into_iter().take(args.worst.into()).enumerate() {
        let Some(small) = shrunk(one, args)? else { continue };
        let file = small.draft.text(Some(small.percent));
        let _ = writeln!(text, "\n{}:\n{file}", small.words());
        if let Some(directory) = &args.keep {
            write(&directory.join(format!("seed-{}-{at}.toml", args.seed)), file.as_bytes())?;
        }
    }
    Ok(text)
}

/// The smallest scenario that keeps losing, measured with all seeds; `None` if it was one seed's bad luck.
fn shrunk(found: Found, args: &AttackArgs) -> Result<Option<Found>, SimCommandError> {
    let runs = args.runs.into();
    let Some(mut one) = measured(&[found.draft], runs)?.pop().filter(|one| one.percent > args.least) else {
        return Ok(None);
    };
    loop {
        let needed = args.least.max(one.percent * KEPT);
        let smaller = measured(&one.draft.smaller(), runs)?;
        match smaller.into_iter().find(|other| other.percent >= needed) {
            Some(other) => one = other,
            None => return Ok(Some(one)),
        }
    }
}

/// The drafts of which a loss can be told, with it.
fn measured(drafts: &[Draft], runs: usize) -> Result<Vec<Found>, SimCommandError> {
    let found = pool::each(drafts.len(), |at| measure(&drafts[at], runs));
    let found = found.map_err(|source| SimCommandError::Scenario { path: "a draft".into(), source })?;
    Ok(found.into_iter().flatten().collect())
}

fn measure(draft: &Draft, runs: usize) -> Result<Option<Found>, ScenarioError> {
    let scenario = Scenario::parse(&draft.text(None))?;
    match scenario.run(&scenario.host(None)?, 1, runs) {
        Ok(report) => Ok(loss(&report).map(|percent| Found {
            draft: draft.clone(),
            percent,
            against_off: loss_against(&report, "off"),
        })),
        // A guest that deadlocks by itself tells nothing.
        Err(ScenarioError::Sim(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_attack_says_what_it_found_and_keeps_it() {
        let directory = std::env::temp_dir().join(format!("vmm-attack-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let args =
            AttackArgs { candidates: 12, seed: 1, runs: 1, least: -1000.0, worst: 1, keep: Some(directory.clone()) };
        let text = run(&args).expect("an attack");
        assert!(text.contains("of 12 candidates lose more than -1000 %") && text.contains("[[arm]]"), "{text}");
        let kept = fs::read_to_string(directory.join("seed-1-0.toml")).expect("it was kept");
        assert!(text.contains(&kept) && Scenario::parse(&kept).is_ok());
        fs::remove_dir_all(directory).expect("it was there");
    }
}
