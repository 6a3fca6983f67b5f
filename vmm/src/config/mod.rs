// SPDX-License-Identifier: Apache-2.0
//! From what the user wrote to a machine that can be built.
//!
//! First step of the flow: flags and `--config FILE` fill one struct, [`MachineConfig`], and [`MachineConfig::resolve`]
//! turns it into a [`Machine`], which is plain, validated and complete. The invariants: a flag and a key of the file
//! that mean the same have the same name (`--numa-distance` is `numa_distance`) and the same grammar, a flag wins over
//! the file, and whatever `--print-config` prints is accepted back as the same configuration.

mod api;
mod bench;
pub mod cli;
pub mod client;
mod cpus;
mod distance;
mod error;
mod experiment;
mod file;
mod huge_pages;
mod known_keys;
mod machine;
mod machine_config;
mod memory_policy;
mod nearest;
mod numa;
mod offer;
mod pause;
mod placement;
mod probe_line;
mod resolve;
mod rules_off;
mod serial;
mod shared_files;
mod sim;
mod size;
mod text;
mod thresholds;
mod value_error;

pub use api::ApiPlan;
pub use cpus::CpusConfig;
pub use distance::DistanceConfig;
pub use error::ConfigError;
pub use experiment::{ExperimentArgs, HowArgs};
pub use file::{FileError, FileFormat, ParseError, PrintError, parse, print, read};
pub use huge_pages::HugePages;
pub use known_keys::{UnknownKey, known_keys};
pub use machine::{Boot, Machine, NodeWish};
pub use machine_config::MachineConfig;
pub use memory_policy::MemoryPolicy;
pub(crate) use nearest::nearest as nearest_name;
pub use numa::{NodeConfig, NumaEntry};
pub use offer::{CpuMask, OfferPlan, PvChoice, PvFeature, QuietExit, QuietExits};
pub use pause::{
    InjectionConfig, MechanismChoice, PauseMode, PauseParameter, PausePlan, SourceChoice, SourceParameters,
    known_parameters, set_parameters,
};
pub use placement::PlacementConfig;
pub use rules_off::RulesOff;
pub use serial::SerialConfig;
pub use sim::{AttackArgs, SimArgs, SimTask, SweepArgs};
pub use size::ByteSize;
pub use thresholds::EventThresholds;
pub use value_error::ValueError;

#[cfg(test)]
mod round_trip_tests;
