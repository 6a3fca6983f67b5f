// SPDX-License-Identifier: Apache-2.0
//! What an experiment compares, and on what: a TOML file, checked against the host CPUs it is to run on.
//!
//! First step of the flow. Invariant: a [`Plan`] can be carried out; whatever cannot is refused here, with the line and
//! the key. The file's keys are described in docs/experiments.md.

mod arm;
mod check;
mod error;
mod file;
mod guests;
mod place;
mod ratio;
mod workloads;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

pub use arm::{Arm, ArmSettings};
pub use error::{PlanError, PlanFault, Problem};
pub use guests::{GuestSet, MONITOR_MIB};
pub use place::Place;
pub use ratio::Ratio;

/// What the guests do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in tables.
    pub name: String,
    /// What its guests run, without its duration.
    pub program: Program,
    /// Line of the plan that asks for it, from 1.
    pub line: usize,
}

/// What a guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The probe guest with these words.
    Probe(String),
    /// Linux with this tool and its settings, as in `dbench clients=16`.
    Linux(String),
}

/// A ratio and the guests that make it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The ratio.
    pub ratio: Ratio,
    /// The guests.
    pub guests: GuestSet,
}

/// A run beside the cells, of which every decision about a pause loop is kept. Indices into the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The workload.
    pub workload: usize,
    /// The ratio.
    pub load: usize,
    /// The arm; one that asks the policy.
    pub arm: usize,
}

/// A checked plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name: the run directory begins with it.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Seed of the order and of the statistics.
    pub seed: u64,
    /// Counted runs of each cell, at least 1.
    pub repetitions: u32,
    /// Runs of each cell before those, which are kept and not counted.
    pub warm_up: u32,
    /// How long the guests work, in milliseconds.
    pub window_ms: u32,
    /// How long a run may take in all before its guests are ended, in seconds.
    pub time_limit_s: u32,
    /// Ratios, in the order of the file.
    pub loads: Vec<Load>,
    /// Workloads, in the order of the file.
    pub workloads: Vec<Workload>,
    /// Arms, in the order of the file.
    pub arms: Vec<Arm>,
    /// Index of the arm that the others are compared with.
    pub baseline: usize,
    /// Host CPUs that all guests share.
    pub cpus: CpuSet<HostCpu>,
    /// Where the cells run.
    pub place: Place,
    /// What is looked at closely after the cells, if anything.
    pub look: Option<Look>,
}

impl Plan {
    /// Reads a plan for a host on which this process may use the CPUs `allowed`.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn read(path: &Path, allowed: &CpuSet<HostCpu>) -> Result<(Self, String), PlanError> {
        let unreadable = |source| PlanError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(error::MOST_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > error::MOST_BYTES {
            return Err(PlanError::TooLong { path: path.to_owned() });
        }
        let plan = Self::parse(&text, allowed);
        plan.map(|plan| (plan, text))
            .map_err(|fault| PlanError::Content { path: path.to_owned(), fault: Box::new(fault) })
    }

    /// Reads a plan from its text.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, allowed: &CpuSet<HostCpu>) -> Result<Self, PlanFault> {
        check::check(text, file::parse(text)?, allowed)
    }

    /// Whether its guests are Linux.
    #[must_use]
    pub fn is_linux(&self) -> bool {
        self.workloads.iter().any(|workload| matches!(workload.program, Program::Linux(_)))
    }

    /// The greatest sum of memory that its guests need at one time, in MiB, and the guests that need it.
    #[must_use]
    pub fn most_memory(&self) -> (u64, GuestSet) {
        let sums = self.loads.iter().map(|load| (load.guests.all_mib(), load.guests));
        sums.max_by_key(|(mib, _)| *mib).expect("invariant: a plan has a ratio")
    }
}

#[cfg(test)]
mod tests;
