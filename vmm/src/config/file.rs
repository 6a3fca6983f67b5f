// SPDX-License-Identifier: Apache-2.0
//! `--config FILE` and `--print-config`: a configuration as TOML or JSON.
//!
//! The invariant: what [`print`] makes, [`parse`] reads back as the same configuration. Keys are checked in a pass of
//! their own, before values, so that a mistyped key is named with its line whatever else is wrong.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::MachineConfig;
use super::known_keys::{KnownKeys, UnknownKey};

/// Greatest accepted size of a file in bytes: a machine with a thousand nodes takes a tenth of it.
const MAX_BYTES: u64 = 1 << 20;

/// The key of the table as which the parser hands on a date or a time.
const TOML_DATE: &str = "$__toml_private_datetime";
/// What is said of one.
const NO_DATES: &str = "a date or time is no value of this key; write a number, or text in quotes";

/// How a configuration is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FileFormat {
    /// TOML 1.0.
    Toml,
    /// JSON, RFC 8259.
    Json,
}

impl FileFormat {
    /// JSON if the first character that is not blank opens an object, else TOML, where none can stand there.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if text.trim_start().starts_with('{') { Self::Json } else { Self::Toml }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
        }
    }
}

/// Why a configuration file was refused.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("--config {}: cannot read it: {source}; give the path of a readable TOML or JSON file", .path.display())]
    Read {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is too long to be one of ours.
    #[error("--config {}: longer than {MAX_BYTES} bytes; is it the right file?", .path.display())]
    TooLong {
        /// The path as given.
        path: PathBuf,
    },
    /// The content is wrong.
    #[error("--config {}: {source}", .path.display())]
    Content {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseError,
    },
}

/// Why a text is not a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A key that does not exist.
    #[error("line {line}: {unknown}")]
    UnknownKey {
        /// Line of the key, from 1.
        line: usize,
        /// The key and its neighbours.
        unknown: UnknownKey,
    },
    /// Not the format it looks like, or a value of the wrong kind.
    #[error("line {line}: {message} (read as {format})")]
    Value {
        /// Line of the mistake, from 1.
        line: usize,
        /// What the parser, or the grammar of the value, says.
        message: String,
        /// The format the text was taken for.
        format: &'static str,
    },
}

/// A configuration that cannot be written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration cannot be printed: {reason}; a path that is not UTF-8 works as a flag but not in a file")]
pub struct PrintError {
    reason: String,
}

/// Reads a configuration file, TOML or JSON by its content.
///
/// # Errors
/// The file cannot be read, is too long, or holds something else than a configuration.
pub fn read(path: &Path) -> Result<MachineConfig, FileError> {
    let unreadable = |source| FileError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    parse(&text).map_err(|source| FileError::Content { path: path.to_owned(), source })
}

/// Reads a configuration, TOML or JSON by its content.
///
/// # Errors
/// An unknown key, a wrong value, or text that is neither TOML nor JSON.
pub fn parse(text: &str) -> Result<MachineConfig, ParseError> {
    // A byte order mark, which editors leave; TOML ignores it, JSON does not know it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let format = FileFormat::of(text);
    let known = KnownKeys::of_machine();
    let checked = match format {
        FileFormat::Toml => {
            toml::Deserializer::parse(text).and_then(|toml| known.check(toml)).map_err(|error| toml_error(text, &error))
        }
        FileFormat::Json => {
            known.check(&mut serde_json::Deserializer::from_str(text)).map_err(|error| json_error(&error))
        }
    };
    if let Err(error) = checked {
        return Err(match (known.into_unknown(), error) {
            (Some(unknown), ParseError::Value { line, format, .. }) if unknown.key == TOML_DATE => {
                ParseError::Value { line, message: NO_DATES.to_owned(), format }
            }
            (Some(unknown), ParseError::Value { line, .. }) => ParseError::UnknownKey { line, unknown },
            (_, error) => error,
        });
    }
    match format {
        FileFormat::Toml => toml::from_str(text).map_err(|error| toml_error(text, &error)),
        FileFormat::Json => serde_json::from_str(text).map_err(|error| json_error(&error)),
    }
}

/// Writes a configuration down, with a newline at its end.
///
/// # Errors
/// A path is not UTF-8.
pub fn print(config: &MachineConfig, format: FileFormat) -> Result<String, PrintError> {
    let failed = |reason: String| PrintError { reason };
    match format {
        FileFormat::Toml => toml::to_string(config).map_err(|error| failed(error.to_string())),
        FileFormat::Json => {
            let text = serde_json::to_string_pretty(config).map_err(|error| failed(error.to_string()))?;
            Ok(text + "\n")
        }
    }
}

fn toml_error(text: &str, error: &toml::de::Error) -> ParseError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
    let message = if error.message().contains(TOML_DATE) { NO_DATES } else { error.message() };
    ParseError::Value { line, message: message.to_owned(), format: FileFormat::Toml.name() }
}

fn json_error(error: &serde_json::Error) -> ParseError {
    // The position stands at the end of the text, where it is of no use beside `line`.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    ParseError::Value { line: error.line(), message, format: FileFormat::Json.name() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, CpusConfig, NumaEntry};

    fn complaint(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "cpus = { count = 4, threads = 2 }\nmemory = \"1G\"\nnuma_distance = [\"0:1=21\"]\n\
                    [[numa]]\ncpus = \"0-1\"\n[[numa]]\ncpus = \"2-3\"\n";
        let json = r#" {"cpus": {"count": 4, "threads": 2}, "memory": 1073741824, "numa_distance": ["0:1=21"],
                        "numa": [{"cpus": "0,1"}, {"cpus": "2-3"}]}"#;
        let config = parse(toml).expect("well-formed");
        assert_eq!(parse(json), Ok(config.clone()));
        assert_eq!(config.cpus, Some(CpusConfig { threads: Some(2), ..CpusConfig::flat(4) }));
        assert_eq!(config.memory, Some(ByteSize(1 << 30)));
        assert_eq!(config.numa.len(), 2);
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_do_not_matter() {
        for text in ["\u{feff}cpus = 2\r\n", "\u{feff}{\r\n\"cpus\": 2}\r\n"] {
            assert_eq!(parse(text).expect(text).cpus, Some(CpusConfig::flat(2)));
        }
    }

    #[test]
    fn the_two_files_of_the_documentation_are_one_machine() {
        let page = include_str!("../../../docs/configuration.md");
        let block = |format: &str| {
            let start = page.split_once(&format!("```{format}\n")).expect("the page has such a block").1;
            parse(start.split_once("```").expect("the block ends").0).expect("well-formed")
        };
        assert_eq!(block("toml"), block("json"));
        assert!(block("toml").topology().is_ok());
    }

    #[test]
    fn numbers_are_short_for_tables() {
        let config = parse("cpus = 32\nnuma = 4\n").expect("well-formed");
        assert_eq!(config.cpus, Some(CpusConfig::flat(32)));
        assert_eq!(config.numa, [NumaEntry::Split(4)]);
    }

    #[test]
    fn an_empty_file_asks_for_nothing() {
        assert_eq!(parse(""), Ok(MachineConfig::default()));
        assert_eq!(parse("{}"), Ok(MachineConfig::default()));
    }

    #[test]
    fn unknown_keys_are_named_with_their_line_and_the_nearest_key() {
        let top = "known keys are cpus, memory, numa, numa_distance, kernel, initrd, cmdline, probe, serial, report, \
                   pause, pause_source, pause_mechanism, pause_set, decision_log, inject_preemption, pv, disable_exits, \
                   halt_poll, cpu_mask, placement, placement_off, hugepages, core_scheduling, api_sock, \
                   api_listen, api_token_file, api_only, api_thresholds";
        assert_eq!(
            complaint("# a machine\ncpus = 4\nmemroy = \"1G\"\n"),
            format!("line 3: unknown key `memroy`, did you mean `memory`?; {top}")
        );
        assert_eq!(complaint("{\n\"cpus\": 4,\n\"colour\": true}"), format!("line 3: unknown key `colour`; {top}"));
        assert_eq!(
            complaint("[[numa]]\ncpus = \"0\"\nmem = \"1G\"\n"),
            "line 3: unknown key `mem` in numa; known keys are cpus, memory, host_node, policy"
        );
        assert_eq!(
            complaint("[cpus]\ncount = 4\ncore = 4\n"),
            "line 3: unknown key `core` in cpus, did you mean `cores`?; \
             known keys are count, sockets, dies, clusters, cores, threads"
        );
    }

    #[test]
    fn wrong_values_are_named_with_their_line() {
        assert_eq!(
            complaint("cpus = 4\nmemory = \"1X\"\n"),
            "line 2: `1X` is not a size; write bytes, or a whole number with K, M, G or T (powers of 1024), as in 512M \
             (read as TOML)"
        );
        assert!(complaint("{\"cpus\":\n -4}").starts_with("line 2: invalid value: integer `-4`"));
        assert!(complaint("cpus = 4\ncpus = 5\n").starts_with("line 2: duplicate key"));
        assert!(complaint("{\"cpus\": 4,\n\"cpus\": 5}").starts_with("line 2: duplicate field"));
        assert!(complaint("{\"cpus\": 4").starts_with("line 1: EOF"));
        assert!(complaint("cpus").starts_with("line 1: "));
        assert!(complaint("[[numa]]\ncpus = \"0-\"\n").starts_with("line 2: `0-` in a CPU list"));
        assert!(complaint("[cpus]\ncores = 4\n").contains("missing field `count`"));
    }

    #[test]
    fn a_date_is_called_one() {
        for key in ["cpus", "numa", "report", "memory", "halt_poll", "pause", "placement", "kernel"] {
            for date in ["1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "[1979-05-27]", "{ a = 1979-05-27 }"] {
                let text = complaint(&format!("\n{key} = {date}\n"));
                assert!(text.starts_with("line 2: ") && !text.contains("$__"), "{text}");
            }
        }
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let absent = read(Path::new("/absent/machine.toml")).expect_err("no such file").to_string();
        assert!(absent.contains("/absent/machine.toml") && absent.contains("No such file"), "{absent}");
        assert!(matches!(read(Path::new("/")), Err(FileError::Read { .. })));
        assert!(matches!(read(Path::new("/dev/zero")), Err(FileError::TooLong { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_cannot_be_printed() {
        use std::os::unix::ffi::OsStrExt;
        let kernel = Some(std::ffi::OsStr::from_bytes(b"\xff").into());
        let config = MachineConfig { kernel, ..MachineConfig::default() };
        for format in [FileFormat::Toml, FileFormat::Json] {
            assert!(print(&config, format).expect_err("not UTF-8").to_string().contains("not UTF-8"));
        }
    }
}
