// SPDX-License-Identifier: Apache-2.0
//! The monitor as a job of a shell on a terminal: in the background it neither stands still nor touches the terminal, in
//! the foreground it has it raw, and whoever gets it back gets it as it was.
//!
//! The shell is a real one, with a pseudo-terminal as its controlling terminal and no line editor of its own, so that the
//! terminal's settings are what the jobs make them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};

use crate::monitor;
use crate::terminal::Terminal;
use crate::{Missing, kvm, trial};

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// One test for each way into the background, and out of it.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_job_started_in_the_background_runs_to_its_end", shell, background_to_its_end),
        trial("a_job_in_the_background_leaves_the_keys_to_the_shell", shell, background_without_keys),
        trial("a_job_started_in_the_background_gets_the_terminal_with_fg", shell, background_then_fg),
        trial("a_job_that_was_stopped_goes_on_in_the_background_and_comes_back", shell, stopped_bg_fg),
        trial("a_job_that_is_asked_to_stop_gives_the_terminal_back", shell, asked_to_stop),
        trial("a_job_that_ends_in_the_background_leaves_the_terminal_alone", shell, ends_in_background),
    ]
}

fn shell() -> Missing {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    kvm().or_else(|| {
        let missing: Vec<&str> = ["bash", "setsid"].into_iter().filter(|tool| !found(tool)).collect();
        (!missing.is_empty()).then(|| format!("{} is not installed", missing.join(", ")))
    })
}

/// A shell with job control, on a terminal of its own.
struct Shell {
    terminal: Terminal,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    child: Child,
}

impl Shell {
    fn start() -> Self {
        let terminal = Terminal::new();
        let keys = terminal.person.try_clone().unwrap();
        let mut person = terminal.person.try_clone().unwrap();
        let (tell, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = person.read(&mut chunk) {
                if tell.send(chunk[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let side = || terminal.program.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command.env("PS1", "$ ").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        let mut shell = Self { terminal, keys, screen, seen: String::new(), child };
        // What is shown is told apart from what is typed, which is shown too, by the quotes.
        shell.says("echo rea''dy", "ready");
        shell
    }

    fn types(&mut self, line: &str) {
        self.keys.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Types a command and waits until its answer is on the screen.
    fn says(&mut self, line: &str, answer: &str) {
        self.types(line);
        self.shows(answer);
    }

    fn shows(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.screen.recv_timeout(left) else { panic!("{text} is not shown:\n{}", self.seen) };
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        let end = self.seen.find(text).map_or(0, |at| at + text.len());
        self.seen.drain(..end);
    }

    /// Starts the monitor as a job; what is said of its end goes to the screen.
    fn starts(&mut self, workload: &str, how: &str) {
        let program = monitor::program().display();
        self.types(&format!("{program} --cpus=2 --probe '{workload}'{how}"));
    }

    /// The monitor among the children of the shell, once its vCPUs are there.
    fn job(&self) -> Pid {
        let found = eventually("the monitor starts", || {
            let vcpus = |pid: &u32| names_of_threads(*pid).iter().filter(|name| name.starts_with("vcpu")).count();
            descendants(self.child.id()).into_iter().find(|pid| vcpus(pid) == 2)
        });
        Pid::from_raw(found.cast_signed()).unwrap()
    }

    /// Ends the shell, which must find the terminal in a state in which it can be told so.
    fn ends(mut self) {
        self.terminal.assert_as_before();
        self.types("exit");
        eventually("the shell ends", || self.child.try_wait().unwrap());
    }
}

fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not so after {LIMIT:?}");
        thread::sleep(POLL);
    }
}

fn names_of_threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let name = |path: PathBuf| fs::read_to_string(path.join("comm")).ok();
    tasks.filter_map(|task| name(task.path())).collect()
}

/// The processes below this one.
fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    children.flat_map(|pid| std::iter::once(pid).chain(descendants(pid))).collect()
}

/// The letter of proc_pid_stat(5); none if the process is gone.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn background_to_its_end() {
    let mut shell = Shell::start();
    // A terminal may be told to stop the background jobs that write to it.
    shell.says("stty tostop; echo wri''ters stop", "writers stop");
    let before = shell.terminal.modes();
    shell.starts("report report=lines", " &");
    shell.shows("@probe done status=ok");
    shell.shows("vmm: guest powered off");
    shell.says("wait; echo status''=$?", "status=0");
    assert_eq!(shell.terminal.modes(), before);
    shell.says("stty -tostop; echo l''et", "let");
    shell.ends();
}

fn background_without_keys() {
    let mut shell = Shell::start();
    shell.starts("echo report=none", " &");
    let job = shell.job();
    for round in 0..20 {
        // Whoever reads first gets it; were it the guest, the shell would be silent.
        shell.says(&format!("echo he''ard {round}"), &format!("heard {round}"));
        assert!(matches!(state(job), Some('S' | 'R' | 'D')), "it runs");
    }
    assert!(!shell.terminal.is_raw());
    shell.says("kill %1; wait; echo stat''us=$?", "status=0");
    shell.ends();
}

fn background_then_fg() {
    let mut shell = Shell::start();
    shell.starts("echo report=none", " &");
    shell.job();
    shell.says("echo sti''ll the shell", "still the shell");
    assert!(!shell.terminal.is_raw());
    shell.types("fg");
    shell.terminal.wait_until_raw();
    // The guest ends its lines with a carriage return, as a terminal in raw mode sends it.
    shell.keys.write_all(b"for the guest\r").unwrap();
    shell.shows("for the guest");
    shell.keys.write_all(b"\x01x").unwrap();
    shell.shows("vmm: stopped");
    shell.says("echo stat''us=$?", "status=0");
    shell.ends();
}

fn stopped_bg_fg() {
    let mut shell = Shell::start();
    shell.starts("echo report=none", "");
    shell.terminal.wait_until_raw();
    let job = shell.job();
    // Not to be caught: the monitor cannot put anything back, the shell does.
    kill_process(job, Signal::STOP).unwrap();
    eventually("it stands still", || (state(job) == Some('T')).then_some(()));
    shell.says("echo sto''pped", "stopped");
    shell.types("bg");
    eventually("it goes on", || (state(job) != Some('T')).then_some(()));
    for round in 0..20 {
        shell.says(&format!("echo he''ard {round}"), &format!("heard {round}"));
        assert_ne!(state(job), Some('T'), "it runs");
    }
    assert!(!shell.terminal.is_raw());
    shell.types("fg");
    shell.terminal.wait_until_raw();
    kill_process(job, Signal::TERM).unwrap();
    shell.shows("vmm: stopped");
    shell.says("echo stat''us=$?", "status=0");
    assert!(!shell.terminal.is_raw());
    shell.ends();
}

fn asked_to_stop() {
    let mut shell = Shell::start();
    shell.starts("spin seconds=300 report=none", "");
    shell.terminal.wait_until_raw();
    let job = shell.job();
    for _ in 0..3 {
        kill_process(job, Signal::TSTP).unwrap();
        eventually("it stands still", || (state(job) == Some('T')).then_some(()));
        shell.terminal.assert_as_before();
        shell.says("echo sto''pped", "stopped");
        shell.types("fg");
        shell.terminal.wait_until_raw();
    }
    shell.keys.write_all(b"\x01x").unwrap();
    shell.shows("vmm: stopped");
    shell.says("echo stat''us=$?", "status=0");
    shell.ends();
}

fn ends_in_background() {
    let mut shell = Shell::start();
    shell.starts("spin seconds=300 report=none", "");
    shell.terminal.wait_until_raw();
    let job = shell.job();
    kill_process(job, Signal::STOP).unwrap();
    eventually("it stands still", || (state(job) == Some('T')).then_some(()));
    shell.says("stty sane -echo; bg; echo st''ate", "state");
    eventually("it goes on", || (state(job) != Some('T')).then_some(()));
    let before = shell.terminal.modes();
    kill_process(job, Signal::TERM).unwrap();
    shell.says("wait; echo stat''us=$?", "status=0");
    assert_eq!(shell.terminal.modes(), before, "the settings are the shell's");
    shell.says("stty sane; echo ag''ain", "again");
    shell.terminal.before = shell.terminal.now();
    shell.ends();
}
