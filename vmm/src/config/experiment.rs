// SPDX-License-Identifier: Apache-2.0
//! What `vmm experiment` can be asked: its own flags, which describe no machine. Pure.

use std::path::PathBuf;

use clap::Subcommand;

/// What `vmm experiment` is asked.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum ExperimentArgs {
    /// Run a plan: every cell in an order by seed, each kept as soon as it is measured
    Run {
        /// Plan; resources/plans has some, docs/experiments.md says what they hold
        plan: PathBuf,
        /// Where everything is kept: a directory that is not there yet, or is empty [default: NAME-SECONDS]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Print the schedule and the expected time, and run nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Go on with a run that was interrupted
    Resume {
        /// Its directory
        run: PathBuf,
    },
    /// Show what a run brought, and write report.html, report.md, report.json, report.csv and samples.csv into its directory
    Report {
        /// Its directory
        run: PathBuf,
    },
    /// Show two runs side by side, with a warning where their hosts differ
    Compare {
        /// Directory of the run that is the base
        base: PathBuf,
        /// Directory of the other
        other: PathBuf,
    },
}
