// SPDX-License-Identifier: Apache-2.0
//! What `vmm sim` can be asked: its own flags, which describe no machine. Pure.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sim::sweep::Axis;

/// What `vmm sim` is asked.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SimArgs {
    /// What else than running one scenario
    #[command(subcommand)]
    pub task: Option<SimTask>,
    /// Scenario file; resources/scenarios has some, docs/simulator.md says what they hold
    #[arg(required = true)]
    pub scenario: Option<PathBuf>,
    /// First seed; the runs take it and those that follow
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs of each arm, each with a seed of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Run only this arm, by its name
    #[arg(long, value_name = "ARM")]
    pub policy: Option<String>,
    /// Run only this case, by its name, if the file has several
    #[arg(long, value_name = "CASE")]
    pub case: Option<String>,
    /// Change a key of the file, as in vm.0.vcpus=16
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a chart, as SVG; as a page with the table if FILE ends in .html
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Write a timeline of the first seed of the last arm, for Perfetto or Chrome; as lines of text if FILE ends in .txt
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Write what the policy decided for the first VM in that run, for `vmm replay`
    #[arg(long, value_name = "FILE")]
    pub decision_log: Option<PathBuf>,
}

/// What `vmm sim` does besides running a scenario.
#[derive(Subcommand, Clone, Debug, PartialEq)]
pub enum SimTask {
    /// Vary settings of one arm, on all CPUs, and rank them by throughput and fairness
    Sweep(SweepArgs),
    /// Look for scenarios where acting is worse than not acting, and make the worst of them small
    Attack(AttackArgs),
}

/// What `vmm sim sweep` is asked.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SweepArgs {
    /// Scenario files
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// A key and its values, as in arm.pause.bail_after=1,3,6; `arm.` alone is the swept arm. Several make all combinations,
    /// none varies each parameter of the policy in turn
    #[arg(long, value_name = "KEY=VALUES", value_parser = axis)]
    pub vary: Vec<Axis>,
    /// A key and the values under which everything is tried, as in vm.0.vcpus=8,16,32
    #[arg(long, value_name = "KEY=VALUES", value_parser = axis)]
    pub under: Vec<Axis>,
    /// The arm to vary, by its name; the last of each scenario if not given
    #[arg(long, value_name = "ARM")]
    pub policy: Option<String>,
    /// First seed; the runs take it and those that follow
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs of each combination, each with a seed of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a chart of throughput against fairness, as SVG; as a page with the table if FILE ends in .html
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
}

/// What `vmm sim attack` is asked.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct AttackArgs {
    /// Random scenarios to try
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub candidates: u32,
    /// Seed of the first candidate; the others follow it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs of each arm of what is looked at closely
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Loss in per cent from which on a scenario counts
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    pub least: f64,
    /// How many of the worst are made small and shown
    #[arg(long, default_value_t = 5)]
    pub worst: u16,
    /// Keep them as files in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub keep: Option<PathBuf>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, as in vm.0.vcpus=16")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn axis(text: &str) -> Result<Axis, String> {
    let (key, values) = text.split_once('=').ok_or("write KEY=VALUE,VALUE, as in arm.every=1,8")?;
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if values.iter().any(String::is_empty) {
        return Err("a value is missing: write KEY=VALUE,VALUE, as in arm.every=1,8".to_owned());
    }
    Ok(Axis { key: key.trim().to_owned(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_key_and_a_value() {
        assert_eq!(setting("vm.0.vcpus=16"), Ok(("vm.0.vcpus".to_owned(), "16".to_owned())));
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(setting("a").is_err());
    }

    #[test]
    fn an_axis_is_a_key_and_its_values() {
        let axis_of = |text| axis(text).map(|axis| (axis.key, axis.values));
        assert_eq!(axis_of("a.b=1, 2"), Ok(("a.b".to_owned(), vec!["1".to_owned(), "2".to_owned()])));
        for bad in ["a", "a=", "a=1,,2"] {
            assert!(axis(bad).is_err(), "{bad}");
        }
    }
}
