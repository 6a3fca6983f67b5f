// SPDX-License-Identifier: Apache-2.0
//! One guest of a cell: a child process of this same program, listened to, told to begin, and read at its end.
//!
//! Invariant: a guest that is dropped is dead and waited for, and its report is removed; what it prints is untrusted and
//! bounded.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use guest::line::{LONGEST, Line};
use probe::record::Record;
use probe::report::{LINE_MAX, parse_line};

use crate::host::child;
use crate::report::Report;

/// What is kept of what a guest's monitor says about itself: the end, where an error stands.
const SAID_BYTES: usize = 2048;

/// What a guest's output told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// All CPUs are up, and it waits for its line.
    Ready,
    /// Its workload's result.
    Result,
    /// Why there will be none.
    Failure,
    /// Its output is closed: it is at its end.
    Closed,
}

/// What it told, when, and by which guest.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) guest: usize,
    pub(super) told: Told,
    pub(super) at: Instant,
    /// What the agent of a Linux guest said, if it is that.
    pub(super) agent: Option<Line>,
}

/// A guest that runs.
pub(super) struct Guest {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Option<JoinHandle<String>>,
    report: PathBuf,
}

impl Guest {
    /// Starts guest number `guest` by `command`, which names its machine; its report goes to `report`.
    pub(super) fn start(
        mut command: Command,
        report: PathBuf,
        guest: usize,
        messages: Sender<Message>,
    ) -> io::Result<Self> {
        command.arg("--report").arg(&report);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child::dies_with_this_thread(&mut command).spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on dropping it ends the child.
        let mut this = Self { child, stdin, said: None, report };
        if let Some(stdout) = stdout {
            thread::Builder::new().spawn(move || listen(stdout, guest, &messages))?;
        }
        if let Some(stderr) = stderr {
            this.said = Some(thread::Builder::new().spawn(move || last_words(stderr))?);
        }
        Ok(this)
    }

    /// Lets its workload begin.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"\n"))
    }

    /// Its status, if it is at its end.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What its monitor said last. Its output is closed, so it is at its end; it is made sure of that.
    pub(super) fn last_words(&mut self) -> String {
        // One that has ended needs no killing.
        let _ = self.child.kill();
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut errors = lines.iter().filter(|line| line.starts_with("vmm: "));
        errors.next_back().or(lines.last()).map_or_else(|| "nothing".to_owned(), |line| (*line).to_owned())
    }

    /// The report that it left.
    pub(super) fn report(&self) -> Result<Report, String> {
        let text = fs::read_to_string(&self.report).map_err(|error| format!("its report cannot be read: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("its report is none: {error}"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill, and its status is only fetched.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // One that failed wrote none.
        let _ = fs::remove_file(&self.report);
    }
}

/// Longest line of any guest that is looked at.
const LONGEST_LINE: usize = if LINE_MAX > LONGEST { LINE_MAX } else { LONGEST };
/// What a Linux kernel says when it can do no more.
const PANIC: &str = "Kernel panic";

/// Reads lines, each at most as long as a guest's, to the end.
fn listen(stdout: impl Read, guest: usize, messages: &Sender<Message>) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    // Whoever no longer listens has given the guest up; it is read all the same, so that it does not block on its output.
    let tell = |told, agent| {
        let _ = messages.send(Message { guest, told, at: Instant::now(), agent });
    };
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST_LINE as u64 + 2).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if let Some((told, agent)) = heard(line.trim_ascii_end()) {
            tell(told, agent);
        }
    }
    tell(Told::Closed, None);
}

/// What a line tells, if it tells anything.
fn heard(line: &[u8]) -> Option<(Told, Option<Line>)> {
    if let Some(said) = Line::parse(line) {
        let told = match said {
            Line::Waiting(_) => Told::Ready,
            Line::Result(..) => Told::Result,
            Line::Failed(_) => Told::Failure,
        };
        return Some((told, Some(said)));
    }
    match parse_line(line) {
        Some(Ok(Record::Waiting(_))) => Some((Told::Ready, None)),
        Some(Ok(Record::Outcome(_))) => Some((Told::Result, None)),
        Some(_) => None,
        None => {
            let text = String::from_utf8_lossy(line);
            let at = text.find(PANIC)?;
            Some((Told::Failure, Some(Line::Failed(text[at..].to_owned()))))
        }
    }
}

/// Reads to the end, so that nobody blocks on a full pipe, and keeps the last bytes.
fn last_words(mut stderr: impl Read) -> String {
    let (mut kept, mut chunk) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = stderr.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..read]);
        let surplus = kept.len().saturating_sub(SAID_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_a_guest_prints_is_bounded_and_only_its_records_count() {
        let mut output = b"hello\r\n@probe waiting cpus=4\r\n".to_vec();
        output.extend(vec![b'x'; 1 << 20]);
        output.extend(b"@probe waiting cpus=junk\n\xff\xfe\n@probe waiting cpus=4");
        let (sender, receiver) = mpsc::channel();
        listen(output.as_slice(), 3, &sender);
        drop(sender);
        let told: Vec<Told> = receiver.iter().inspect(|message| assert_eq!(message.guest, 3)).map(|m| m.told).collect();
        assert_eq!(told, [Told::Ready, Told::Ready, Told::Closed]);
    }

    #[test]
    fn an_agent_is_heard_and_so_is_a_panic_but_not_a_broken_line() {
        let waiting = Line::Waiting(2);
        assert_eq!(heard(waiting.to_string().as_bytes()), Some((Told::Ready, Some(waiting))));
        let failed = Line::Failed("no tool".to_owned());
        assert_eq!(heard(failed.to_string().as_bytes()), Some((Told::Failure, Some(failed))));
        assert_eq!(heard(b"@agent waiting 2 #00000000"), None);
        let panic = heard(b"[    1.5] Kernel panic - not syncing: no init").expect("a panic");
        assert_eq!(panic, (Told::Failure, Some(Line::Failed("Kernel panic - not syncing: no init".to_owned()))));
        assert_eq!(heard(b"hello"), None);
    }

    #[test]
    fn the_end_of_what_a_monitor_says_is_kept() {
        let said = last_words([vec![b'x'; 100_000], b"\nvmm: it is broken\n".to_vec()].concat().as_slice());
        assert!(said.len() <= SAID_BYTES && said.ends_with("vmm: it is broken\n"));
    }
}
