// SPDX-License-Identifier: Apache-2.0
//! What `vmm experiment` can be asked: its own flags, which describe no machine. Pure.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use guest::job::Tool;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

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
        /// Take these for the host's CPUs: a plan whose guests follow the host follows them
        #[arg(long, value_name = "LIST")]
        cpus: Option<CpuSet<HostCpu>>,
        /// How cells are run.
        #[command(flatten)]
        how: HowArgs,
    },
    /// Go on with a run that was interrupted
    Resume {
        /// Its directory
        run: PathBuf,
        /// How cells are run.
        #[command(flatten)]
        how: HowArgs,
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
    /// Make the files that Linux guests boot from, out of Debian's packages, and say how large they are
    Image {
        /// Where they are written
        directory: PathBuf,
        /// For this tool alone; repeatable [default: all]
        #[arg(long, value_name = "TOOL", value_parser = tool)]
        tool: Vec<Tool>,
    },
}

/// How the cells of a run are run.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct HowArgs {
    /// Files that Linux guests boot from, made before by `vmm experiment image` [default: made now, in the run's directory]
    #[arg(long, value_name = "DIR")]
    pub image: Option<PathBuf>,
    /// Run the cells on this host, even if the plan is for an emulated one
    #[arg(long)]
    pub here: bool,
    /// Run so many cells now; `resume` goes on
    #[arg(long, value_name = "N")]
    pub at_most: Option<usize>,
}

fn tool(text: &str) -> Result<Tool, String> {
    Tool::named(text)
        .ok_or_else(|| format!("there is no such tool; known are {}", Tool::ALL.map(Tool::name).join(", ")))
}
