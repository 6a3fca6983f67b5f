// SPDX-License-Identifier: Apache-2.0
//! The words behind `vmm bench`: what is measured, for how long, against what.

use std::path::PathBuf;

use clap::Subcommand;

use super::RulesOff;

#[derive(Subcommand)]
pub(super) enum Bench {
    /// Pause loops under no handling, fixed mechanisms and the policy: a table, and whether the goals are met
    Pause {
        /// How long each run works
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
        seconds: f64,
        /// Runs of each arm of each cell
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        runs: u32,
        /// Only the cells whose name contains this, as in "ring 8/1"
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// Write all numbers as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Time that vCPUs wait while another task keeps one CPU busy, and the work done, with --placement auto and with less: a
    /// table
    Placement {
        /// How long each run works
        #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
        seconds: f64,
        /// Pairs of runs, one with each placement
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
        pairs: u32,
        /// vCPUs
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
        cpus: u32,
        /// The probe guest's workload, with its words but seconds and report
        #[arg(long, value_name = "TEXT", default_value = "spin")]
        probe: String,
        /// Compare --placement auto with all rules and without these, instead of with no placement
        #[arg(long, value_name = "RULES")]
        off: Option<RulesOff>,
        /// Keep no CPU busy
        #[arg(long)]
        undisturbed: bool,
        /// Write all numbers as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// How fast the control API answers while vCPUs run, and what the guest loses by it: two tables
    Api {
        /// How long each run works
        #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
        seconds: f64,
        /// Rounds of runs: without an API, not asked, asked at a pace, asked without a break
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        /// vCPUs
        #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=255))]
        cpus: u32,
        /// Requests a second at a pace
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        pace: u32,
        /// Write all numbers as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// A run's length as the plans have it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the probe's own limits")]
pub(super) fn milliseconds(seconds: f64) -> u32 {
    (seconds * 1000.0).clamp(10.0, 300_000.0) as u32
}
