// SPDX-License-Identifier: Apache-2.0
//! What `vmm sim` can be asked: its own flags, which describe no machine. Pure.

use std::path::PathBuf;

use clap::Args;

/// What `vmm sim` is asked.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct SimArgs {
    /// Scenario file; resources/scenarios has some, docs/simulator.md says what they hold
    pub scenario: PathBuf,
    /// First seed; the runs take it and those that follow
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs of each arm, each with a seed of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub runs: u16,
    /// Run only this arm, by its name
    #[arg(long, value_name = "ARM")]
    pub policy: Option<String>,
    /// Change a key of the file, as in vm.0.vcpus=16
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a chart, as SVG
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Write a timeline of the first seed of the last arm, for Perfetto or Chrome; as lines of text if FILE ends in .txt
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Write what the policy decided for the first VM in that run, for `vmm replay`
    #[arg(long, value_name = "FILE")]
    pub decision_log: Option<PathBuf>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, as in vm.0.vcpus=16")?;
    Ok((key.to_owned(), value.to_owned()))
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
}
