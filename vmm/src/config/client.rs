// SPDX-License-Identifier: Apache-2.0
//! The command lines of `vmm ctl` and `vmm top`: where a machine is, and what is asked of it.
//!
//! Pure: no file is opened here. Invariant: every path of the API has a word of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::PauseMode;

/// Where the machine is.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointArgs {
    /// Path of the machine's Unix socket, as it was given to --api-sock
    #[arg(long, value_name = "PATH", global = true, help_heading = "Machine", conflicts_with = "api_listen")]
    pub api_sock: Option<PathBuf>,

    /// TCP address of the machine, as it was given to --api-listen
    #[arg(long, value_name = "ADDRESS:PORT", global = true, help_heading = "Machine")]
    pub api_listen: Option<SocketAddr>,

    /// File with the token that the machine on TCP asks for
    #[arg(long, value_name = "FILE", global = true, help_heading = "Machine")]
    pub api_token_file: Option<PathBuf>,
}

/// `vmm ctl`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(subcommand_required = true, disable_help_subcommand = true)]
pub struct CtlArgs {
    /// Where the machine is.
    #[command(flatten)]
    pub endpoint: EndpointArgs,

    /// Print the answer as the machine sent it
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,

    /// Change only a machine of this generation: status 1 if it was changed since
    #[arg(long, value_name = "GENERATION", global = true, help_heading = "Output")]
    pub if_match: Option<u64>,

    /// What is asked.
    #[command(subcommand)]
    pub call: Call,
}

/// What is asked of a machine.
#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Show the machine: state, generation, configuration
    Vm,
    /// Create the machine that a TOML or JSON file describes, where vmm was started with --api-only
    Create {
        /// The file; `-` reads stdin
        file: PathBuf,
    },
    /// Start a machine that was created, or let a paused one go on
    Start,
    /// Hold all vCPUs where they are
    Pause,
    /// Let a paused machine go on
    Resume,
    /// End the machine at once
    Stop,
    /// Press the power button
    PowerButton,
    /// Press the reset button
    Reset,
    /// Send every vCPU a non-maskable interrupt
    Nmi,
    /// Show all vCPUs
    Vcpus,
    /// Show one vCPU, or give its thread other host CPUs
    Vcpu {
        /// Its index
        index: u32,
        /// Host CPUs that its thread may use from now on, as in 0-3,8
        #[arg(long, value_name = "LIST")]
        affinity: Option<CpuSet<HostCpu>>,
    },
    /// Show the guest's shape
    Topology,
    /// Show the host
    Host,
    /// Show where the machine is and why, or change how that is decided
    Placement(PlacementArgs),
    /// Show what is done about pause loops, or change it
    PauseLoops(PauseArgs),
    /// Show from which numbers on events tell of pause pressure and stolen time, or change them
    Thresholds(ThresholdArgs),
    /// Show sums over the machine, and what the monitor costs
    Stats,
    /// Show the latest decisions about pause loops
    Decisions {
        /// Decisions at most
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Print the guest's serial output
    Serial {
        /// Begin with the byte of this number, the guest's first being 0
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// Go on as it comes, until the machine ends
        #[arg(long)]
        follow: bool,
    },
    /// Print events as they come, one a line
    Events {
        /// Begin behind the event of this number; 0 prints all that are kept
        #[arg(long, value_name = "ID")]
        after: Option<u64>,
        /// End after so many
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Print all counters as OpenMetrics
    Metrics,
    /// Print the OpenAPI document
    Openapi,
}

/// A change of the placement; nothing shows it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementArgs {
    /// How it is decided from now on
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<PlacementWord>,
    /// Put every vCPU thread on these host CPUs, as in 0-3,8; with --mode pin
    #[arg(long, value_name = "LIST")]
    pub pin: Option<CpuSet<HostCpu>>,
    /// Switch a rule, as in cluster=off
    #[arg(long = "rule", value_name = "NAME=on|off", value_parser = switched)]
    pub rules: Vec<(String, bool)>,
}

/// A mode of placement, without its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementWord {
    /// By the host's shape, and goes on deciding
    Auto,
    /// Once, as far apart as possible
    Spread,
    /// Once, as close together as possible
    Pack,
    /// Not at all
    None,
    /// On the CPUs of --pin
    Pin,
}

/// A change of the pause handling; nothing shows it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseArgs {
    /// How much is done from now on
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<PauseMode>,
    /// The mechanism from now on
    #[arg(long, value_name = "NAME")]
    pub mechanism: Option<String>,
    /// Set a parameter, as --pause-set does
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = valued)]
    pub parameters: Vec<(String, u64)>,
}

/// A change of the thresholds of events; nothing shows them.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThresholdArgs {
    /// Pause events a second, over all vCPUs
    #[arg(long, value_name = "N")]
    pub pause_events_per_s: Option<u64>,
    /// Part of the vCPUs' time spent runnable without a CPU, in thousandths
    #[arg(long, value_name = "N")]
    pub steal_permille: Option<u64>,
}

/// `vmm top`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TopArgs {
    /// Where the machine is.
    #[command(flatten)]
    pub endpoint: EndpointArgs,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,

    /// Print so many looks one below the other, without keys and colours
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,

    /// What the rows are sorted by
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t)]
    pub sort: Column,

    /// Show only vCPUs with this index, state or host CPU: `3`, `halted`, `cpu=0`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
}

/// What rows can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Index, lowest first
    #[default]
    Index,
    /// Host CPU, lowest first
    Cpu,
    /// Time in guest code, most first
    Guest,
    /// Time halted, most first
    Halted,
    /// Time runnable without a CPU, most first
    Waiting,
    /// Time given away in pause loops, most first
    Spin,
    /// Pause events, most first
    Events,
    /// Yields, most first
    Yields,
}

fn switched(text: &str) -> Result<(String, bool), String> {
    match text.split_once('=') {
        Some((name, "on" | "true")) => Ok((name.to_owned(), true)),
        Some((name, "off" | "false")) => Ok((name.to_owned(), false)),
        _ => Err("write NAME=on or NAME=off".to_owned()),
    }
}

fn valued(text: &str) -> Result<(String, u64), String> {
    let pair = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    pair.ok_or_else(|| "write NAME=VALUE, with a whole number as the value".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds from 0.1 to 3600".to_owned())
}
