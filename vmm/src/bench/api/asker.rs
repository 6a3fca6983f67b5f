// SPDX-License-Identifier: Apache-2.0
//! One client on one connection: asks, waits for the answer, notes how long it took.
//!
//! Invariant: no answer is waited for without an end; a machine that ends ends the asking.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Most time that a machine may take to be there, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How fast is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// So many a second; one that is late is followed at once by the next.
    Every(u32),
    /// Without a break.
    AtOnce,
}

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answers {
    /// How long each took, in microseconds, in the order of their asking.
    pub latency_us: Vec<f64>,
    /// Answers a second, over the time that was asked.
    pub per_s: f64,
    /// CPU time of the machine's API thread for each answer, in microseconds; where `/proc` tells.
    pub cpu_us: Option<f64>,
    /// Size of the last answer's body, in bytes.
    pub bytes: usize,
}

/// Asks for `path` while the machine runs, until the end of its workload of `milliseconds` is near.
pub(super) fn ask(socket: &Path, path: &str, pace: Pace, milliseconds: u32) -> io::Result<Answers> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = loop {
        match Line::open(socket).and_then(|mut line| line.get("/api/v1/vm").map(|body| (line, body))) {
            Ok((line, body)) if contains(&body, b"\"state\":\"running\"") => break line,
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(_) | Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    };
    let pid = line.get("/api/v1/vm").map(|body| pid_in(&body))?;
    let cpu = |pid: Option<u32>| pid.and_then(api_thread_cpu_ns);
    let (cpu_before, began) = (cpu(pid), Instant::now());
    // The workload begins a moment after the machine runs, so this is over before it.
    let end = began + Duration::from_millis(milliseconds.into()).mul_f64(0.9);
    let mut answers = Answers::default();
    let mut due = began;
    while Instant::now() < end {
        if let Pace::Every(per_s) = pace {
            due += Duration::from_secs(1) / per_s.max(1);
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let asked = Instant::now();
        let body = line.get(path)?;
        answers.latency_us.push(asked.elapsed().as_secs_f64() * 1e6);
        answers.bytes = body.len();
    }
    #[expect(clippy::cast_precision_loss, reason = "a run of seconds")]
    let (count, spent) = (answers.latency_us.len() as f64, |ns: u64| ns as f64 / 1e3);
    answers.per_s = count / began.elapsed().as_secs_f64();
    answers.cpu_us =
        cpu(pid).zip(cpu_before).map(|(after, before)| spent(after.saturating_sub(before)) / count.max(1.0));
    Ok(answers)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn pid_in(vm: &[u8]) -> Option<u32> {
    let vm: serde_json::Value = serde_json::from_slice(vm).ok()?;
    u32::try_from(vm.get("pid")?.as_u64()?).ok()
}

/// Time on a CPU of the thread that is called `api` (Documentation/scheduler/sched-stats.rst, `/proc/PID/schedstat`).
fn api_thread_cpu_ns(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
    let mut named =
        tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == "api"));
    let text = fs::read_to_string(named.next()?.path().join("schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// A connection that stays open.
struct Line(BufReader<UnixStream>);

impl Line {
    fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::with_capacity(64 * 1024, stream)))
    }

    /// The body of an answer, whatever its status.
    fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut header = String::new();
            if self.0.by_ref().take(8192).read_line(&mut header)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let header = header.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            }
        }
        let mut body = Vec::new();
        self.0.by_ref().take(length).read_to_end(&mut body)?;
        Ok(body)
    }
}
