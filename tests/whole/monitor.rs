// SPDX-License-Identifier: Apache-2.0
//! Starts the monitor, waits for its end under a watchdog, and looks at what it left behind.
//!
//! Every monitor is the leader of a process group of its own and works in an empty directory of its own.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Far more than any run here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(5);

/// The monitor under test.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match env::var_os("VMM") {
        Some(path) => fs::canonicalize(&path).unwrap_or_else(|error| panic!("VMM={}: {error}", path.display())),
        None => build(),
    })
}

/// Cargo builds no binary of another package for a test, so this asks for it; nothing is done when it is there.
fn build() -> PathBuf {
    let test = env::current_exe().unwrap();
    let directory = test.parent().and_then(Path::parent).expect("a test is in DIR/deps");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "vmm", "--bin", "vmm"]);
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(status.success(), "the monitor does not build: {status}");
    directory.join("vmm")
}

/// A monitor that will be started.
pub(crate) struct Monitor {
    command: Command,
    input: Vec<u8>,
    directory: TempDir,
}

/// A monitor that runs.
pub(crate) struct Started {
    child: Child,
    output: Option<JoinHandle<Vec<u8>>>,
    errors: Option<JoinHandle<Vec<u8>>>,
    directory: TempDir,
}

/// A monitor at its end.
pub(crate) struct Ended {
    /// What its parent is told.
    pub(crate) status: ExitStatus,
    /// What the guest said.
    pub(crate) output: String,
    /// What the monitor said.
    pub(crate) errors: String,
    /// Where it worked.
    pub(crate) directory: TempDir,
}

impl Monitor {
    /// The monitor with these arguments, an empty stdin, and both outputs read.
    pub(crate) fn new<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let mut command = Command::new(program());
        command.args(arguments);
        Self::of(command)
    }

    /// Any command that becomes the monitor.
    pub(crate) fn of(mut command: Command) -> Self {
        let directory = TempDir::new().unwrap();
        command.current_dir(directory.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, input: Vec::new(), directory }
    }

    /// What it reads from a pipe that is closed after it.
    pub(crate) fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }

    /// Another stdin than a pipe.
    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Another stdout than a pipe that is read.
    pub(crate) fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.command.stdout(stdout);
        self
    }

    /// One more argument.
    pub(crate) fn argument(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: &Path) -> Self {
        self.command.env(name, value);
        self
    }

    /// The directory it works in.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Started {
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        // A monitor that ends early does not read; the write may fail, and the test looks at the end.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(&self.input));
        let output = child.stdout.take().map(read_in_thread);
        let errors = child.stderr.take().map(read_in_thread);
        Started { child, output, errors, directory: self.directory }
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(self) -> Ended {
        self.start().wait()
    }
}

fn read_in_thread(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

impl Started {
    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The directory it works in.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// The names of its threads.
    pub(crate) fn thread_names(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        tasks.filter_map(|task| name(task.unwrap())).map(|name| name.trim_end().to_owned()).collect()
    }

    /// The number of its thread of this name.
    pub(crate) fn thread_of(&self, name: &str) -> u32 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().map(Result::unwrap);
        let mut named =
            tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name));
        let task = named.next().unwrap_or_else(|| panic!("no thread {name}"));
        task.file_name().to_str().unwrap().parse().unwrap()
    }

    /// Waits until as many vCPU threads are there as `count`.
    pub(crate) fn wait_for_vcpus(&self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.thread_names().iter().filter(|name| name.starts_with("vcpu")).count() < count {
            assert!(Instant::now() < deadline, "{count} vCPU threads do not come: {:?}", self.thread_names());
            thread::sleep(POLL);
        }
    }

    /// Waits for its end, and looks for processes that it left.
    pub(crate) fn wait(mut self) -> Ended {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > deadline => break None,
                None => thread::sleep(POLL),
            }
        };
        if status.is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
        let text = |reader: Option<JoinHandle<Vec<u8>>>| {
            let bytes = reader.map(|reader| reader.join().unwrap()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (output, errors) = (text(self.output.take()), text(self.errors.take()));
        let Some(status) = status else { panic!("no end within {LIMIT:?}\n{output}\n{errors}") };
        let left = processes_of_group(self.child.id());
        assert!(left.is_empty(), "processes left behind: {left:?}");
        Ended { status, output, errors, directory: self.directory }
    }
}

/// The processes of a group that are there, zombies included.
fn processes_of_group(group: u32) -> Vec<String> {
    let is_member = |stat: &String| {
        // The name is in brackets and may hold anything; state, parent and group follow it.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        behind_name.split_ascii_whitespace().nth(2) == Some(&group.to_string())
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).filter(is_member).collect()
}

impl Ended {
    /// Its exit status as a shell shows it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal)).unwrap()
    }

    /// Fails, with all that was said, unless the exit status is `code`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{}\n{}", self.output, self.errors);
        self
    }

    /// Fails unless the run ended for `reason`: a line of the monitor's own, behind warnings it may have.
    #[track_caller]
    pub(crate) fn expect_reason(&self, reason: &str) {
        let told = self.errors.lines().any(|line| line.strip_prefix("vmm: ") == Some(reason));
        assert!(told, "{} should say {reason}", self.errors);
    }

    /// The names of the files in its directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A pipe that nobody reads.
pub(crate) fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A file with this content, for stdin.
pub(crate) fn file_with(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file
}
