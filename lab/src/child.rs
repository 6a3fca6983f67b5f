// SPDX-License-Identifier: Apache-2.0
//! Child processes that cannot outlive us.
//!
//! Place in the flow: every program the lab starts (apt-get, dpkg-deb, busybox, QEMU) is started here. Invariant: a child is
//! killed when its guard is dropped, when its time is up, and, through the parent-death signal that `setpriv` sets before it
//! becomes the program, when this process dies in a way that runs no destructor. Only our own children are ever signalled.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::unavailable::LabUnavailable;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A command for `program` that gets SIGKILL when the thread that starts it ends. `setpriv` (util-linux, essential in
/// Debian) becomes the program, so the child's process id is the program's own.
pub(crate) fn bound_to_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Kills and reaps its child when dropped.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the command.
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// The exit status, if the child has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Waits for the end, however long it takes.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only when the child has been reaped, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a tool to its end within `limit` and gives its standard output; anything but success says what the tool said last.
pub(crate) fn output(command: &mut Command, limit: Duration, remedy: &str) -> Result<Vec<u8>, LabUnavailable> {
    // setpriv, its two options and the separator come before the tool's own name.
    let name = command.get_args().nth(3).unwrap_or(command.get_program()).to_string_lossy().into_owned();
    let failed = |why: String| LabUnavailable::new(name.clone(), why, remedy);
    let io_failed = |error: io::Error| failed(error.to_string());
    let mut stdout = tempfile::tempfile().map_err(io_failed)?;
    let mut stderr = tempfile::tempfile().map_err(io_failed)?;
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().map_err(io_failed)?);
    command.stderr(stderr.try_clone().map_err(io_failed)?);
    // It is setpriv that is started; a tool that is not there is told by setpriv.
    let mut child = Guard::spawn(command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LabUnavailable::new("setpriv", error, "install util-linux"),
        _ => io_failed(error),
    })?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.ended().map_err(io_failed)? {
            break status;
        }
        if started.elapsed() >= limit {
            return Err(failed(format!("it did not end within {} s", limit.as_secs())));
        }
        thread::sleep(LOOK_EVERY);
    };
    if status.success() {
        return content(&mut stdout).map_err(io_failed);
    }
    let said = content(&mut stderr).map_err(io_failed)?;
    Err(failed(format!("{status}: {}", last_complaint(&String::from_utf8_lossy(&said)))))
}

fn content(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first line apt marks as an error, or the last line of all.
fn last_complaint(text: &str) -> &str {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.clone().find(|line| line.starts_with("E:")).or_else(|| lines.next_back()).unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_tool_gives_its_output() {
        let text = output(bound_to_us("sh").args(["-c", "echo hello"]), LIMIT, "install sh");
        assert_eq!(text.unwrap(), b"hello\n");
    }

    #[test]
    fn a_failing_tool_says_what_it_said() {
        let script = "echo 'W: old' >&2; echo 'E: no such package' >&2; echo later >&2; exit 100";
        let error = output(bound_to_us("sh").args(["-c", script]), LIMIT, "look").unwrap_err();
        assert_eq!(error.what, "sh");
        assert!(error.why.contains("E: no such package"), "{}", error.why);
    }

    #[test]
    fn a_machine_without_setpriv_is_told_so() {
        let mut command = Command::new("/absent/setpriv");
        let error = output(command.args(["--pdeathsig", "KILL", "--", "sh"]), LIMIT, "install sh").unwrap_err();
        assert_eq!((error.what.as_str(), error.remedy.as_str()), ("setpriv", "install util-linux"));
    }

    /// The name and the state letter of a process (proc_pid_stat(5), fields 2 and 3).
    fn name_and_state(pid: u32) -> Option<(String, char)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = text.rsplit_once(") ")?;
        Some((head.split_once('(')?.1.to_owned(), tail.chars().next()?))
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        let started = Instant::now();
        while started.elapsed() < LIMIT {
            if what() {
                return true;
            }
            thread::sleep(LOOK_EVERY);
        }
        false
    }

    #[test]
    fn a_child_dies_with_its_parent_even_when_no_destructor_runs() {
        let parent = thread::spawn(|| {
            let guard = Guard::spawn(bound_to_us("sleep").arg("60")).unwrap();
            let pid = guard.0.id();
            assert!(wait_for(|| name_and_state(pid).is_some_and(|(name, _)| name == "sleep")));
            std::mem::forget(guard);
            pid
        });
        let pid = parent.join().unwrap();
        assert!(wait_for(|| name_and_state(pid).is_none_or(|(_, state)| state == 'Z')), "process {pid} is left");
    }

    #[test]
    fn a_tool_that_does_not_end_is_killed_at_its_limit() {
        let started = Instant::now();
        let error = output(bound_to_us("sleep").arg("100"), Duration::from_millis(50), "wait").unwrap_err();
        assert!(error.why.contains("did not end"), "{}", error.why);
        assert!(started.elapsed() < LIMIT);
    }
}
