// SPDX-License-Identifier: Apache-2.0
//! The command line.
//!
//! Turns arguments, and the configuration file they name, into one [`Invocation`]. The invariant: it prints nothing and
//! ends nothing; texts and errors are handed to `main`, which owns the streams and the exit status.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bench::{Bench, milliseconds};
use super::client::{CtlArgs, TopArgs};
use super::{ConfigError, ExperimentArgs, FileError, FileFormat, MachineConfig, SimArgs, file, shared_files};
use crate::bench::{ApiBenchPlan, BenchPlan, PlacementBenchPlan};

/// What the user wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// Run a machine, unless `check` or `print_config` ask for less.
    Run {
        /// The machine asked for: flags over file over defaults.
        config: Box<MachineConfig>,
        /// Only validate: resolve the configuration and stop.
        check: bool,
        /// Only print the configuration, in this format; after the check if both are asked for.
        print_config: Option<FileFormat>,
    },
    /// Print what this host offers.
    Host {
        /// As JSON instead of text.
        json: bool,
    },
    /// Compare ways to handle pause loops.
    BenchPause(BenchPlan),
    /// Compare placement with none beside a busy task.
    BenchPlacement(PlacementBenchPlan),
    /// Measure what the control API costs.
    BenchApi(ApiBenchPlan),
    /// Make the decisions of a log again and compare.
    Replay {
        /// A file written with `--decision-log`.
        log: PathBuf,
    },
    /// Print the topology a machine would have.
    Topology {
        /// The machine asked for.
        config: Box<MachineConfig>,
        /// How to print it.
        format: TopologyFormat,
    },
    /// Print where a machine's vCPUs and memory would go.
    Placement(Placement),
    /// Run a scenario on the simulated host.
    Sim(Box<SimArgs>),
    /// Ask a running machine something, or change it.
    Ctl(Box<CtlArgs>),
    /// Watch a running machine.
    Top(Box<TopArgs>),
    /// Run an experiment, or show what one brought.
    Experiment(ExperimentArgs),
    /// Run a machine, or a shell, on an emulated host.
    Lab {
        /// Everything behind `lab`, as it was written.
        words: Vec<OsString>,
    },
}

/// What `vmm placement` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Who has which CPUs of this host, and what the next machine would get.
    Claims {
        /// The next machine.
        config: Box<MachineConfig>,
        /// As JSON instead of text.
        json: bool,
    },
    /// Where this machine would go, and why.
    Explain {
        /// The machine asked for.
        config: Box<MachineConfig>,
        /// The host, if it is not this one: a capture as `resources/hosts` has them.
        fixture: Option<PathBuf>,
        /// How to print it.
        format: PlacementFormat,
    },
}

/// How `vmm placement explain` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlacementFormat {
    /// A row for each run of vCPUs with the same reason.
    #[default]
    Table,
    /// A document for programs.
    Json,
    /// The host drawn as boxes, for browsers.
    Svg,
    /// The host drawn as boxes, as text.
    Text,
}

/// How `vmm topology` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopologyFormat {
    /// A row for each vCPU, then the distances.
    #[default]
    Table,
    /// A document for programs.
    Json,
    /// A drawing of what contains what.
    Tree,
}

/// Why there is no [`Invocation`].
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Help or version was asked for, or the arguments are wrong; [`clap::Error::exit_code`] tells which.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The file that `--config` names is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// An output would overwrite that file.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

#[derive(Parser)]
#[command(
    name = "vmm",
    version,
    about = "A KVM virtual-machine monitor that knows when its vCPUs spin",
    after_help = "Exit status: 0 guest powered off or run stopped, 1 monitor error, 2 usage, 32 guest reset, 33 guest \
                  crash (triple fault), 34 guest panic.",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    run: RunArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

/// A run and nothing else, understood without the commands beside it: most of them describe the machine's flags once more, and
/// no run shall wait for that.
#[derive(Parser)]
struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Validate flags, files to write and the machine's shape, and stop: status 0 or 2
    #[arg(long, help_heading = "Configuration")]
    check: bool,
    /// Print the configuration with the defaults put in, and stop; --config reads it back
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "toml",
        help_heading = "Configuration"
    )]
    print_config: Option<FileFormat>,
}

impl RunArgs {
    fn into_invocation(self) -> Result<Invocation, CliError> {
        let Self { machine, check, print_config } = self;
        Ok(Invocation::Run { config: machine.into_config()?, check, print_config })
    }
}

#[derive(Args)]
struct MachineArgs {
    #[command(flatten)]
    flags: MachineConfig,
    /// Read keys named as the flags from a TOML or JSON file; flags win over it
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Print what this host offers to guests, and what to do about what is missing
    Host {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure, in paired runs of this same program
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Make the decisions of a log again; status 1 if one comes out differently
    Replay {
        /// A file written with --decision-log
        log: PathBuf,
    },
    /// Print the topology a machine would have
    Topology {
        #[command(flatten)]
        machine: Box<MachineArgs>,
        /// How to print it
        #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
        format: TopologyFormat,
    },
    /// Run a scenario on the simulated host: the same policies, at any size, without KVM
    Sim(Box<SimArgs>),
    /// Run an overcommit experiment from a plan, and show what it brought
    #[command(subcommand)]
    Experiment(ExperimentArgs),
    /// Print who has which CPUs of this host, and what the next machine would get
    #[command(args_conflicts_with_subcommands = true)]
    Placement {
        #[command(flatten)]
        machine: Box<MachineArgs>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(subcommand)]
        question: Option<PlacementQuestion>,
    },
    /// Ask a running machine something, or change it, over its control API
    Ctl(Box<CtlArgs>),
    /// Watch where the vCPUs of a running machine spend their time, over its control API
    Top(Box<TopArgs>),
    /// Run `vmm ARGS...` on an emulated host that has hardware virtualisation: vmm lab -- ARGS...
    #[command(disable_help_flag = true)]
    Lab {
        /// Options of the lab, then `--` and the monitor's own arguments; `vmm lab --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

#[derive(Subcommand)]
enum PlacementQuestion {
    /// Print where a machine would go, with the rule, the score and the runner-up of each decision
    Explain {
        #[command(flatten)]
        machine: Box<MachineArgs>,
        /// Decide for the host captured in this file (resources/hosts/capture.sh makes one) instead of this one
        #[arg(long, value_name = "FILE", help_heading = "Placement")]
        host_fixture: Option<PathBuf>,
        /// How to print it
        #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
        format: PlacementFormat,
    },
}

impl PlacementQuestion {
    fn into_placement(self) -> Result<Placement, CliError> {
        Ok(match self {
            Self::Explain { machine, host_fixture, format } => {
                Placement::Explain { config: machine.into_config()?, fixture: host_fixture, format }
            }
        })
    }
}

impl Bench {
    fn into_invocation(self) -> Invocation {
        match self {
            Self::Pause { seconds, runs, only, json } => Invocation::BenchPause(BenchPlan {
                milliseconds: milliseconds(seconds),
                runs,
                only,
                json,
                cpus: Vec::new(),
            }),
            Self::Placement { seconds, pairs, cpus, probe, off, undisturbed, json } => {
                Invocation::BenchPlacement(PlacementBenchPlan {
                    milliseconds: milliseconds(seconds),
                    pairs,
                    vcpus: cpus,
                    workload: probe,
                    off,
                    busy: !undisturbed,
                    json,
                })
            }
            Self::Api { seconds, rounds, cpus, pace, json } => Invocation::BenchApi(ApiBenchPlan {
                milliseconds: milliseconds(seconds),
                rounds,
                vcpus: cpus,
                pace,
                json,
            }),
        }
    }
}

impl MachineArgs {
    fn into_config(self) -> Result<Box<MachineConfig>, CliError> {
        let below = self.config.as_deref().map_or_else(|| Ok(MachineConfig::default()), file::read)?;
        let config = self.flags.over(below).effective();
        shared_files::check_with(&config, self.config.as_ref())?;
        Ok(Box::new(config))
    }
}

/// Reads the command line, its first word being the name of the program.
///
/// # Errors
/// Wrong arguments, a wrong file, or a wish for help: see [`CliError`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, CliError> {
    let args: Vec<OsString> = args.into_iter().collect();
    // Handed on as written: clap would take the `--` away, behind which the arguments of the other monitor begin.
    if let [_, command, words @ ..] = args.as_slice()
        && command == "lab"
    {
        return Ok(Invocation::Lab { words: words.to_vec() });
    }
    // What is no run, or a faulty one, or a wish for help, is read again with all there is.
    if let Ok(run) = RunArgs::try_parse_from(&args) {
        return run.into_invocation();
    }
    let Cli { run, command } = Cli::try_parse_from(args)?;
    Ok(match command {
        None => run.into_invocation()?,
        Some(Command::Host { json }) => Invocation::Host { json },
        Some(Command::Sim(args)) => Invocation::Sim(args),
        Some(Command::Experiment(args)) => Invocation::Experiment(args),
        Some(Command::Bench { what }) => what.into_invocation(),
        Some(Command::Replay { log }) => Invocation::Replay { log },
        Some(Command::Topology { machine, format }) => Invocation::Topology { config: machine.into_config()?, format },
        Some(Command::Placement { machine, json, question: None }) => {
            Invocation::Placement(Placement::Claims { config: machine.into_config()?, json })
        }
        Some(Command::Placement { question: Some(question), .. }) => Invocation::Placement(question.into_placement()?),
        Some(Command::Ctl(args)) => Invocation::Ctl(args),
        Some(Command::Top(args)) => Invocation::Top(args),
        Some(Command::Lab { words }) => Invocation::Lab { words },
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{ByteSize, CpusConfig, NumaEntry};

    fn read(line: &[&str]) -> Result<Invocation, CliError> {
        parse(std::iter::once("vmm").chain(line.iter().copied()).map(OsString::from))
    }

    fn machine(line: &[&str]) -> MachineConfig {
        match read(line).expect("well-formed") {
            Invocation::Run { config, .. } | Invocation::Topology { config, .. } => *config,
            Invocation::Placement(Placement::Explain { config, .. } | Placement::Claims { config, .. }) => *config,
            Invocation::Host { .. }
            | Invocation::BenchPause(_)
            | Invocation::BenchPlacement(_)
            | Invocation::BenchApi(_)
            | Invocation::Replay { .. }
            | Invocation::Sim(_)
            | Invocation::Ctl(_)
            | Invocation::Top(_)
            | Invocation::Experiment(_)
            | Invocation::Lab { .. } => MachineConfig::default(),
        }
    }

    fn complaint(line: &[&str]) -> (ErrorKind, String) {
        match read(line).expect_err("wrong") {
            CliError::Arguments(error) => (error.kind(), error.to_string()),
            CliError::File(error) => (ErrorKind::Io, error.to_string()),
            CliError::Config(error) => (ErrorKind::ArgumentConflict, error.to_string()),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_headline_command_is_read() {
        let config = machine(&["--cpus", "32", "--numa", "4"]);
        assert_eq!(config.cpus, Some(CpusConfig::flat(32)));
        assert_eq!(config.numa, [NumaEntry::Split(4)]);
        assert_eq!(config.memory, Some(ByteSize(512 << 20)));
    }

    #[test]
    fn nodes_and_distances_repeat() {
        let config = machine(&[
            "--cpus=4,threads=2",
            "--numa=cpus=[0-3],memory=1G",
            "--numa=cpus=[],memory=1G",
            "--numa-distance=0:1=21",
            "--numa-distance=1:0=31",
        ]);
        assert_eq!((config.numa.len(), config.numa_distance.len()), (2, 2));
    }

    #[test]
    fn subcommands_take_the_machine_flags_they_need() {
        assert_eq!(read(&["host", "--json"]).expect("well-formed"), Invocation::Host { json: true });
        let Invocation::Topology { config, format } =
            read(&["topology", "--cpus", "8", "--format", "tree"]).expect("well-formed")
        else {
            unreachable!("the command is topology");
        };
        assert_eq!((config.cpus, format), (Some(CpusConfig::flat(8)), TopologyFormat::Tree));
        assert_eq!(complaint(&["--cpus", "8", "host"]).0, ErrorKind::ArgumentConflict);
    }

    #[test]
    fn placement_is_explained_for_any_host() {
        let line = ["placement", "explain", "--cpus", "8", "--host-fixture", "server.txt", "--format", "svg"];
        let Ok(Invocation::Placement(Placement::Explain { config, fixture, format })) = read(&line) else {
            unreachable!("the command is placement explain");
        };
        assert_eq!((config.cpus, fixture), (Some(CpusConfig::flat(8)), Some("server.txt".into())));
        assert_eq!(format, PlacementFormat::Svg);
        let Ok(Invocation::Placement(Placement::Claims { config, json })) = read(&["placement", "--cpus=2", "--json"])
        else {
            unreachable!("the command is placement");
        };
        assert_eq!((config.cpus, json), (Some(CpusConfig::flat(2)), true));
    }

    #[test]
    fn what_follows_lab_is_handed_on_as_written() {
        for line in [&["lab"][..], &["lab", "--help"], &["lab", "--host", "2", "--", "--cpus", "4", "--", "lab"]] {
            let words = line[1..].iter().map(OsString::from).collect();
            assert_eq!(read(line).expect("not judged here"), Invocation::Lab { words });
        }
        assert!(read(&["--cmdline", "lab", "--kernel", "lab"]).is_ok());
    }

    #[test]
    fn print_config_takes_a_format_or_none() {
        for (flag, format) in [("--print-config", FileFormat::Toml), ("--print-config=json", FileFormat::Json)] {
            let Ok(Invocation::Run { print_config, .. }) = read(&[flag]) else { unreachable!("a bare run") };
            assert_eq!(print_config, Some(format));
        }
    }

    #[test]
    fn mistakes_name_the_flag_the_value_and_the_next_step() {
        for (line, parts) in [
            (&["--cpu", "4"][..], &["--cpu", "--cpus"][..]),
            (&["--cpus", "many"], &["many", "--cpus", "not a whole number"]),
            (&["--cpus", "4,core=2"], &["--cpus", "did you mean `cores`?"]),
            (&["--memory", "1X"], &["1X", "--memory", "512M"]),
            (&["--numa-distance", "0=1"], &["--numa-distance", "0:1=21"]),
            (&["--serial", "tty"], &["--serial", "file=PATH"]),
            (&["--cpus", "1", "--cpus", "2"], &["--cpus", "multiple times"]),
            (&["machine"], &["machine"]),
            (&["--config", "/absent.toml"], &["/absent.toml", "No such file"]),
        ] {
            let (_, text) = complaint(line);
            parts.iter().for_each(|part| assert!(text.contains(part), "{text} should say {part}"));
        }
    }

    #[test]
    fn help_and_version_are_no_errors_of_the_user() {
        assert_eq!(complaint(&["--help"]).0, ErrorKind::DisplayHelp);
        let (kind, text) = complaint(&["--version"]);
        assert_eq!(
            (kind, text),
            (ErrorKind::DisplayVersion, concat!("vmm ", env!("CARGO_PKG_VERSION"), "\n").to_owned())
        );
    }

    #[test]
    fn flags_win_over_the_file() {
        let path = std::env::temp_dir().join(format!("vmm-cli-{}.toml", std::process::id()));
        std::fs::write(&path, "cpus = 2\nmemory = \"1G\"\n").expect("a file");
        let config = machine(&["--cpus", "4", "--config", &path.display().to_string()]);
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!((config.cpus, config.memory), (Some(CpusConfig::flat(4)), Some(ByteSize(1 << 30))));
    }

    proptest! {
        #[test]
        fn any_arguments_are_borne(
            line in proptest::collection::vec("(--cpus|--numa|--serial|--numa-distance|-|--|=)?.{0,9}", 0..4),
        ) {
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let _ = read(&line);
        }
    }
}
