// SPDX-License-Identifier: Apache-2.0
//! What `vmm` does when it is called: one function a command, between the command line and the rooms that do the work.

mod devices;
mod message;
mod offers;
mod pause;
mod placed;
mod placement;
mod replay;
mod run;
mod serve;
mod sim;
mod summary;
mod times;
mod topology;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use crate::bench::{self, BenchError};
use crate::client::{self, CallError};
use crate::config::cli::{self, CliError, Invocation, Placement};
use crate::config::{self, ConfigError, MachineConfig, PrintError};
use crate::experiment::{self, ExperimentError};
use crate::host::output::tell;
use crate::host::signals::EndingSignals;
use crate::inspect::HostInspection;
use crate::pause::ReplayError;
use crate::report::ExitStatus;
use crate::top;

pub use placement::PlacementCommandError;
pub use run::RunError;
pub use sim::SimCommandError;
pub use topology::TopologyError;

/// A command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line, or the file it names.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// The configuration is no machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration cannot be printed.
    #[error(transparent)]
    Print(#[from] PrintError),
    /// The lab is to run this very program, and it cannot be found.
    #[error("the path of this program cannot be found: {0}; mount /proc")]
    OwnPath(#[source] io::Error),
    /// Standard output cannot be written.
    #[error("standard output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A measurement.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// An experiment.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A decision log that cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The placement.
    #[error(transparent)]
    Placement(#[from] PlacementCommandError),
    /// A machine that was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The simulation.
    #[error(transparent)]
    Sim(#[from] SimCommandError),
}

impl CommandError {
    /// The exit status that says whose fault it was.
    #[must_use]
    pub fn status(&self) -> ExitStatus {
        match self {
            Self::Cli(CliError::Arguments(error)) if error.exit_code() == 0 => ExitStatus::PoweredOff,
            Self::Cli(_) | Self::Config(_) => ExitStatus::Usage,
            Self::Sim(error) => error.status(),
            Self::Call(error) => error.status(),
            Self::Experiment(error) => error.status(),
            Self::Print(_)
            | Self::OwnPath(_)
            | Self::Output(_)
            | Self::Run(_)
            | Self::Bench(_)
            | Self::Replay(_)
            | Self::Topology(_)
            | Self::Placement(_) => ExitStatus::MonitorError,
        }
    }

    /// Says it on stderr; help and version, which clap takes for errors, on stdout.
    pub fn tell(&self) {
        match self {
            // Nobody is left to be told when stderr is closed.
            Self::Cli(CliError::Arguments(error)) => match error.to_string() {
                text if message::is_long(&text) && error.use_stderr() => tell(&message::shorten(&text)),
                _ => drop(error.print()),
            },
            error => tell(&message::shorten(&format!("vmm: {error}\n"))),
        }
    }
}

/// Carries out a command line; `started` is when the process began. What is run in the lab gives the lab's status.
///
/// # Errors
/// [`CommandError`].
pub fn execute(args: impl IntoIterator<Item = OsString>, started: Instant) -> Result<ExitCode, CommandError> {
    let status = match cli::parse(args)? {
        Invocation::Run { config, check: false, print_config: None } => match config.api_plan()? {
            None => run::run(config.resolve()?, started)?,
            Some(plan) => serve::run(&plan, *config, started)?,
        },
        Invocation::Run { config, check, print_config } => {
            if check {
                config.api_plan()?;
                config.resolve()?;
            }
            print_config.map_or(Ok(ExitStatus::PoweredOff), |format| print(&config, format))?
        }
        Invocation::Host { json } => host(json)?,
        Invocation::BenchPause(plan) => output(&bench::pause(&plan)?)?,
        Invocation::BenchPlacement(plan) => output(&bench::placement(&plan)?)?,
        Invocation::BenchApi(plan) => output(&bench::api(&plan)?)?,
        Invocation::Sim(args) => output(&sim::run(&args)?)?,
        Invocation::Experiment(args) => {
            let answer = experiment::execute(&args)?;
            output(&answer.text)?;
            answer.status
        }
        Invocation::Replay { log } => replay::run(&log)?,
        Invocation::Placement(Placement::Claims { config, json }) => {
            output(&placement::claims(&config.resolve()?, json)?)?
        }
        Invocation::Placement(Placement::Explain { config, fixture, format }) => {
            output(&placement::explain(&config.resolve()?, fixture.as_deref(), format)?)?
        }
        Invocation::Topology { config, format } => output(&topology::render(config.topology()?, format)?)?,
        Invocation::Ctl(args) => client::run(&args).map(|()| ExitStatus::PoweredOff)?,
        Invocation::Top(args) => top::run(&args).map(|()| ExitStatus::PoweredOff)?,
        Invocation::Lab { words } => {
            let executable = env::current_exe().map_err(CommandError::OwnPath)?;
            return Ok(lab::command::run(&executable, &words, ended_by_a_signal).into());
        }
    };
    Ok(status.into())
}

/// Whether one of the signals came that end a run, for a lab host that is to be taken down and not left behind.
fn ended_by_a_signal() -> io::Result<impl FnMut() -> bool> {
    let mut signals = EndingSignals::block()?;
    Ok(move || signals.end_it())
}

fn print(config: &MachineConfig, format: config::FileFormat) -> Result<ExitStatus, CommandError> {
    output(&config::print(config, format)?)
}

fn host(json: bool) -> Result<ExitStatus, CommandError> {
    let host = HostInspection::of_this_host();
    output(&if json { host.to_json() } else { host.to_text() })
}

fn output(text: &str) -> Result<ExitStatus, CommandError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(CommandError::Output)?;
    Ok(ExitStatus::PoweredOff)
}
