// SPDX-License-Identifier: Apache-2.0
//! `vmm lab`: runs the monitor's own command line on an emulated host, with the same files under the same names.
//!
//! Place in the flow: the monitor's argument parser hands over what follows `lab`. Invariant: a path means inside what it
//! means outside. Every argument that names an existing file is copied in under its absolute path and the monitor starts in the
//! same directory; every argument that names a file the monitor wrote comes back to where it names. Standard output stays
//! standard output, the console and standard error become standard error.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::error::LabError;
use crate::host::{Lab, LabResult};
use crate::session::Stream;
use crate::shape::{self, Distance, ShapeError};
use crate::tell::tell;

/// Exit statuses of the monitor (docs: exit status).
const EXIT_MONITOR_ERROR: u8 = 1;
const EXIT_USAGE: u8 = 2;
const DEADLINE_DEFAULT: Duration = Duration::from_secs(600);
/// The lab's memory is RAM of this machine: nobody means to copy more than this.
const COPY_MAX_BYTES: u64 = 1 << 30;
/// Where the kernel's own file systems are; a copy there would be hidden or refused.
const NOT_COPIED: [&str; 4] = ["/proc", "/sys", "/dev", "/lab"];

/// How `vmm lab` is used.
pub const USAGE: &str = "\
Usage: vmm lab [OPTIONS] -- ARGS...    run `vmm ARGS...` on an emulated host
       vmm lab [OPTIONS] --shell       a shell on an emulated host (exit, or Ctrl-A X)
Options:
  --host SHAPE           processors: N, SOCKETSxCORESxTHREADS or SOCKETSxDIESxCORESxTHREADS [1]
  --host-numa N          NUMA nodes, split evenly [one, not announced]
  --host-distance A:B=D  distance between two nodes (repeatable) [20]
  --host-memory MIB      memory in MiB [3072]
  --pause-filter         every PAUSE of a guest is a pause-loop exit
  --deadline SECONDS     real time the run may take [600]; a shell has none";

/// What `vmm lab` was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Processors of the host, see [`shape::HostShape`].
    pub host: String,
    /// NUMA nodes.
    pub numa: Option<u32>,
    /// Distances between nodes.
    pub distances: Vec<Distance>,
    /// Memory in MiB.
    pub memory_mib: Option<u32>,
    /// Whether PAUSE exits.
    pub pause_filter: bool,
    /// Real time for the run.
    pub deadline: Duration,
    /// A shell instead of a run.
    pub shell: bool,
    /// The monitor's arguments.
    pub arguments: Vec<OsString>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            host: "1".to_owned(),
            numa: None,
            distances: Vec::new(),
            memory_mib: None,
            pause_filter: false,
            deadline: DEADLINE_DEFAULT,
            shell: false,
            arguments: Vec::new(),
        }
    }
}

/// Why the arguments after `lab` are not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UsageError {
    /// No such option.
    #[error("unknown option {option:?} of vmm lab; the monitor's own arguments come after --")]
    UnknownOption {
        /// As given.
        option: String,
    },
    /// The option's value is missing or no number.
    #[error("{option} wants {wanted}, got {value:?}")]
    Value {
        /// The option.
        option: String,
        /// What it wants.
        wanted: &'static str,
        /// What it got.
        value: String,
    },
    /// Neither a shell nor anything to run.
    #[error("nothing to run: give -- and the monitor's arguments, or --shell")]
    Nothing,
    /// A switch is there or not.
    #[error("{option} takes no value, got {value:?}; leave the value out, or the option")]
    Switch {
        /// The option.
        option: String,
        /// What it got.
        value: String,
    },
    /// A shell lasts until it is left.
    #[error("--shell has no deadline, it lasts until it is left; leave out --deadline")]
    ShellWithDeadline,
    /// The shell takes no arguments.
    #[error("--shell runs no monitor; leave out -- and what follows, or --shell")]
    ShellWithArguments,
    /// The host's description is wrong.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// Reads what follows `lab`.
pub fn parse(words: &[OsString]) -> Result<Request, UsageError> {
    let mut request = Request::default();
    let end = words.iter().position(|word| word == "--");
    let (options, arguments) = words.split_at(end.unwrap_or(words.len()));
    request.arguments = arguments.iter().skip(1).cloned().collect();
    let mut options = options.iter().map(|word| word.to_string_lossy());
    let mut deadline = None;
    while let Some(word) = options.next() {
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word.into_owned(), None),
        };
        if let ("--pause-filter" | "--shell", Some(value)) = (option.as_str(), &attached) {
            return Err(UsageError::Switch { option, value: value.clone() });
        }
        let mut value = || attached.clone().or_else(|| options.next().map(|v| v.into_owned())).unwrap_or_default();
        match option.as_str() {
            "--host" => {
                request.host = value();
                request.host.parse::<shape::HostShape>()?;
            }
            "--host-numa" => request.numa = Some(number(&option, &value())?),
            "--host-distance" => request.distances.push(shape::parse_distance(&value())?),
            "--host-memory" => request.memory_mib = Some(number(&option, &value())?),
            "--deadline" => deadline = Some(seconds(&option, &value())?),
            "--pause-filter" => request.pause_filter = true,
            "--shell" => request.shell = true,
            _ => return Err(UsageError::UnknownOption { option }),
        }
    }
    match (request.shell, end.is_some()) {
        (true, true) => Err(UsageError::ShellWithArguments),
        (true, false) if deadline.is_some() => Err(UsageError::ShellWithDeadline),
        (false, false) => Err(UsageError::Nothing),
        _ => Ok(Request { deadline: deadline.unwrap_or(DEADLINE_DEFAULT), ..request }),
    }
}

/// A run of no seconds would be an error of the run.
fn seconds(option: &str, value: &str) -> Result<Duration, UsageError> {
    match number(option, value)? {
        0 => {
            Err(UsageError::Value { option: option.to_owned(), wanted: "at least one second", value: value.to_owned() })
        }
        seconds => Ok(Duration::from_secs(seconds.into())),
    }
}

fn number(option: &str, value: &str) -> Result<u32, UsageError> {
    let wanted = "a whole number";
    value.parse().map_err(|_| UsageError::Value { option: option.to_owned(), wanted, value: value.to_owned() })
}

/// Runs `vmm lab WORDS...`; `executable` is the monitor itself, a static binary. Gives the exit status for this process.
///
/// `listen` is called once, where a run begins, and gives what is asked every now and then whether to end it
/// ([`Lab::stop_when`]). A shell is left by whoever sits at it.
pub fn run<S>(executable: &Path, words: &[OsString], listen: impl FnOnce() -> io::Result<S>) -> u8
where
    S: FnMut() -> bool + 'static,
{
    if words.iter().take_while(|word| *word != "--").any(|word| word == "--help" || word == "-h") {
        return match writeln!(io::stdout(), "{USAGE}") {
            Ok(()) => 0,
            Err(error) => {
                tell(format_args!("vmm: standard output cannot be written: {error}"));
                EXIT_MONITOR_ERROR
            }
        };
    }
    match parse(words) {
        Ok(request) => execute(executable, &request, listen).unwrap_or_else(|error| {
            tell(format_args!("vmm: {error}"));
            if matches!(error, LabError::Shape(_) | LabError::Unsound(_)) { EXIT_USAGE } else { EXIT_MONITOR_ERROR }
        }),
        Err(error) => {
            tell(format_args!("vmm: {error}\n{USAGE}"));
            EXIT_USAGE
        }
    }
}

/// Runs a request, `listen` as for [`run`]; gives the exit status of the monitor, 0 after a shell.
pub fn execute<S>(executable: &Path, request: &Request, listen: impl FnOnce() -> io::Result<S>) -> Result<u8, LabError>
where
    S: FnMut() -> bool + 'static,
{
    if request.shell {
        return lab(request).shell().map(|()| 0);
    }
    let stop = listen().map_err(|source| LabError::System { what: "listening for signals", source })?;
    run_monitor(executable, request, lab(request).stop_when(stop))
}

fn lab(request: &Request) -> Lab<'static> {
    let mut lab = Lab::new()
        .host(&request.host)
        .distances(&request.distances)
        .pause_filter(request.pause_filter)
        .deadline(request.deadline);
    if let Some(nodes) = request.numa {
        lab = lab.numa(nodes);
    }
    if let Some(mib) = request.memory_mib {
        lab = lab.memory_mib(mib);
    }
    lab
}

fn run_monitor(executable: &Path, request: &Request, mut lab: Lab<'_>) -> Result<u8, LabError> {
    let system = |what| move |source| LabError::System { what, source };
    let directory = std::env::current_dir().map_err(system("finding the current directory"))?;
    let candidates = candidates(&request.arguments);
    for (path, bytes) in copies(&directory, &candidates)? {
        lab = lab.file(&path, bytes);
    }
    let lab = lab.program_at(executable, "/lab/vmm").on_stream(pass_on());
    tell(format_args!("lab: starting an emulated host ({}), which takes some seconds", request.host));
    let result = lab.run(&script(&directory, &candidates, &request.arguments))?;
    let brought_back = bring_back(&directory, &candidates, &result);
    tell(format_args!(
        "lab: host up after {:.1} s, ended after {:.1} s, attempts {}, QEMU {}, kernel {}",
        result.ready_after.as_secs_f64(),
        result.took.as_secs_f64(),
        result.attempts,
        result.qemu,
        result.kernel
    ));
    brought_back.map(|()| result.status)
}

/// Output to standard output, console to standard error. A closed pipe there must not end the lab half-way.
fn pass_on() -> impl FnMut(Stream, &[u8]) {
    |stream, bytes| {
        let _ = match stream {
            Stream::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            Stream::Console => io::stderr().write_all(bytes),
        };
    }
}

/// The texts among the arguments that may be file names: whole arguments, what follows each `=`, and the strings in quotes
/// of a file that is named (a configuration names its kernel).
fn candidates(arguments: &[OsString]) -> BTreeSet<OsString> {
    let mut found = BTreeSet::new();
    for argument in arguments {
        let bytes = argument.as_bytes();
        found.insert(argument.clone());
        // `--serial=file=PATH` has two.
        let behind = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'=').map(|(at, _)| &bytes[at + 1..]);
        found.extend(behind.map(|value| OsStr::from_bytes(value).to_owned()));
    }
    let named: Vec<_> = found.iter().filter(|name| is_configuration(Path::new(name))).cloned().collect();
    for text in named.iter().filter_map(|name| std::fs::read_to_string(name).ok()) {
        // TOML has both kinds of quotes.
        for quote in ['"', '\''] {
            found.extend(text.split(quote).skip(1).step_by(2).map(OsString::from));
        }
    }
    found.retain(|name| !name.is_empty() && !name.as_bytes().starts_with(b"-"));
    found
}

fn is_configuration(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "toml" || extension == "json")
}

/// Absolute path and content of every candidate that is a file here and can be one there.
fn copies(directory: &Path, candidates: &BTreeSet<OsString>) -> Result<Vec<(String, Vec<u8>)>, LabError> {
    let mut copies = std::collections::BTreeMap::new();
    for path in candidates.iter().map(|name| absolute(directory, name)) {
        let Ok(about) = std::fs::metadata(&path) else { continue };
        if !about.is_file() {
            continue;
        }
        if let Some(why) = stays_here(&path, about.len()) {
            tell(format_args!("lab: {} is not copied into the lab: {why}", path.display()));
            continue;
        }
        if let Some(text) = path.to_str() {
            let what = "copying it into the lab";
            let bytes = std::fs::read(&path).map_err(|source| LabError::File { path: path.clone(), what, source })?;
            copies.insert(text.to_owned(), bytes);
        }
    }
    Ok(copies.into_iter().collect())
}

/// Why a file of this machine is not to be had in the lab.
fn stays_here(path: &Path, bytes: u64) -> Option<&'static str> {
    if bytes > COPY_MAX_BYTES {
        return Some("it has more than 1 GiB");
    }
    let hidden = NOT_COPIED.iter().any(|place| path.starts_with(place));
    hidden.then_some("/proc, /sys, /dev and /lab are the lab's own there; move it elsewhere")
}

/// The path from the root, without `.` and `..`, which the archive does not take.
fn absolute(directory: &Path, name: &OsStr) -> PathBuf {
    let mut out = PathBuf::new();
    for part in directory.join(name).components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => (),
            other => out.push(other),
        }
    }
    out
}

/// Runs the monitor where it would have run, then sends back what it wrote.
fn script(directory: &Path, candidates: &BTreeSet<OsString>, arguments: &[OsString]) -> String {
    let mut out = String::new();
    let place = quoted(directory.as_os_str());
    let line: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
    for parent in candidates.iter().filter_map(|name| absolute(directory, name).parent().map(Path::to_owned)) {
        // Where the monitor is to write a report there must be a directory, if there is one here.
        if parent.is_dir() {
            let _ = writeln!(out, "mkdir -p {}", quoted(parent.as_os_str()));
        }
    }
    // Two dates long past tell a file that was copied in from one that was written since.
    for name in candidates {
        let path = quoted(absolute(directory, name).as_os_str());
        let _ = writeln!(out, "[ -f {path} ] && touch -d @0 {path}");
    }
    let _ = writeln!(out, "touch -d @1 /run/lab-started; mkdir -p {place}; cd {place}");
    let _ = writeln!(out, "/lab/vmm {}\nstatus=$?", line.join(" "));
    for (index, name) in candidates.iter().enumerate() {
        let path = quoted(absolute(directory, name).as_os_str());
        let _ = writeln!(out, "[ -f {path} ] && [ {path} -nt /run/lab-started ] && cp {path} /results/{index}");
    }
    out.push_str("exit $status\n");
    out
}

/// A word for the shell. Bytes that are no text are replaced; the file is then not found and the monitor says so.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

/// Writes what the monitor wrote in the lab. One file that cannot be written does not keep the others there.
fn bring_back(directory: &Path, candidates: &BTreeSet<OsString>, result: &LabResult) -> Result<(), LabError> {
    let mut brought = Ok(());
    for (index, name) in candidates.iter().enumerate() {
        let Some(bytes) = result.files.get(&index.to_string()) else { continue };
        let path = absolute(directory, name);
        let what = "bringing back what the monitor wrote";
        let written = std::fs::write(&path, bytes).map_err(|source| LabError::File { path, what, source });
        brought = brought.and(written);
    }
    brought
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn options_before_the_dashes_are_ours_and_the_rest_is_the_monitors() {
        let request =
            parse(&words("--host 2x2x2 --host-numa=4 --host-distance 0:1=21 --pause-filter -- --cpus 4 --host x"));
        let request = request.unwrap();
        assert_eq!((request.host.as_str(), request.numa, request.pause_filter), ("2x2x2", Some(4), true));
        assert_eq!(request.distances, [(0, 1, 21)]);
        assert_eq!(request.arguments, words("--cpus 4 --host x"));
        assert_eq!(parse(&words("--")).unwrap(), Request::default());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let error = |text: &str| parse(&words(text)).unwrap_err().to_string();
        assert!(error("").contains("nothing to run"));
        assert!(error("--cpus 4").contains("unknown option \"--cpus\""));
        assert!(error("--host 2x2 --").contains("SOCKETSxCORESxTHREADS"));
        assert!(error("--host-numa four --").contains("whole number, got \"four\""));
        assert!(error("--deadline").contains("got \"\""));
        assert!(error("--deadline 0 --").contains("at least one second, got \"0\""));
        assert!(error("--shell -- --cpus 1").contains("--shell runs no monitor"));
        assert!(error("--shell --deadline 5").contains("--shell has no deadline"));
        assert!(error("--shell=no").contains("--shell takes no value, got \"no\""));
        assert!(error("--pause-filter=off --").contains("--pause-filter takes no value, got \"off\""));
    }

    #[test]
    fn every_argument_that_may_be_a_file_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("machine.toml");
        std::fs::write(&config, "kernel = \"vmlinuz\"\ninitrd = 'ramdisk'\n").unwrap();
        let mut arguments = words("--kernel a --initrd=b --serial=file=c");
        arguments.push(config.clone().into_os_string());
        let names = ["a", "b", "c", "file=c", "vmlinuz", "ramdisk"].map(OsString::from);
        let expected = [config.into_os_string()].into_iter().chain(names);
        assert_eq!(candidates(&arguments), BTreeSet::from_iter(expected));
    }

    #[test]
    fn files_are_copied_under_their_absolute_path_and_devices_are_not() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("kernel"), "k").unwrap();
        let names = ["sub/../kernel", "sub", "missing", "/proc/version", "/dev/null"].map(OsString::from);
        let copies = copies(directory.path(), &BTreeSet::from(names)).unwrap();
        let kernel = directory.path().join("kernel").to_str().unwrap().to_owned();
        assert_eq!(copies, [(kernel, b"k".to_vec())]);
    }

    #[test]
    fn what_is_not_copied_is_told_with_the_reason() {
        assert_eq!(stays_here(Path::new("/tmp/kernel"), COPY_MAX_BYTES), None);
        assert!(stays_here(Path::new("/tmp/kernel"), COPY_MAX_BYTES + 1).unwrap().contains("1 GiB"));
        assert!(stays_here(Path::new("/dev/shm/kernel"), 1).unwrap().contains("move it elsewhere"));
    }

    #[test]
    fn a_file_that_cannot_be_brought_back_is_named_and_keeps_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let candidates = BTreeSet::from(["absent/report.json", "log"].map(OsString::from));
        let result = LabResult {
            status: 0,
            console: String::new(),
            output: Vec::new(),
            files: [("0".to_owned(), b"report".to_vec()), ("1".to_owned(), b"log".to_vec())].into(),
            attempts: 1,
            lab_host_hung: 0,
            lab_host_died: 0,
            ready_after: Duration::ZERO,
            took: Duration::ZERO,
            qemu: String::new(),
            kernel: String::new(),
        };
        let error = bring_back(directory.path(), &candidates, &result).unwrap_err().to_string();
        assert!(error.contains("absent/report.json: bringing back"), "{error}");
        assert_eq!(std::fs::read(directory.path().join("log")).unwrap(), b"log");
    }

    #[test]
    fn the_script_quotes_what_the_shell_would_read() {
        let text =
            script(Path::new("/w"), &BTreeSet::from(["r.json".into()]), &words("--report r.json --x $(reboot)'"));
        assert!(text.contains(r"/lab/vmm '--report' 'r.json' '--x' '$(reboot)'\'''"), "{text}");
        assert!(
            text.contains("[ -f '/w/r.json' ] && [ '/w/r.json' -nt /run/lab-started ] && cp '/w/r.json' /results/0")
        );
    }
}
