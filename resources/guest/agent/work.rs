// SPDX-License-Identifier: Apache-2.0
//! Runs a job's tool for its time, and makes a score of it.
//!
//! Invariant: a tool that ends badly, or prints no score, is a failure that says what it printed last.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{Invocation, Job, Run, Tool};
use super::line::Score;
use super::output;

/// Headers of the build, of which each unit looks at all.
const HEADERS: u32 = 40;
/// What is said of a tool's output when it failed.
const LAST_LINES: usize = 4;

/// Makes the files that a tool needs, before the barrier.
pub(super) fn prepare(job: &Job) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("the files of {} cannot be made: {error}", job.tool.name());
    match job.tool {
        Tool::Dbench => fs::create_dir_all("/tmp/dbench").map_err(failed),
        Tool::Kernbuild => {
            fs::create_dir_all("/build/include").map_err(failed)?;
            (0..HEADERS).try_for_each(|n| fs::write(format!("/build/include/{n}.h"), "int x;\n").map_err(failed))
        }
        Tool::Ebizzy | Tool::Sysbench | Tool::StressNg | Tool::Hackbench => Ok(()),
    }
}

/// Runs it.
pub(super) fn carry_out(job: &Job, cpus: u32) -> Result<Score, String> {
    match job.run(cpus) {
        Run::Once(invocation) => {
            let text = output_of(&invocation)?;
            let score = output::score(job.tool, &text).ok_or_else(|| no_score(&invocation, &text))?;
            match score.milli_per_s {
                0 => Err(format!("{} counted nothing in {} s; give it longer", invocation.program, job.seconds())),
                _ => Ok(score),
            }
        }
        Run::Again(invocation, operations) => again(&invocation, operations, job.seconds()),
        Run::InParallel(invocation, at_once) => in_parallel(&invocation, at_once, job.seconds()),
    }
}

/// Runs a tool that times itself until the time is over; only its own times count.
fn again(invocation: &Invocation, operations: u64, seconds: u32) -> Result<Score, String> {
    let begun = Instant::now();
    let (mut ms, mut all) = (0_u64, 0_u64);
    while begun.elapsed() < Duration::from_secs(seconds.into()) {
        let text = output_of(invocation)?;
        ms = ms.saturating_add(output::hackbench_ms(&text).ok_or_else(|| no_score(invocation, &text))?);
        all = all.saturating_add(operations);
    }
    Ok(per_second(all, ms))
}

/// Keeps so many processes going until the time is over.
fn in_parallel(invocation: &Invocation, at_once: u32, seconds: u32) -> Result<Score, String> {
    let (begun, done) = (Instant::now(), AtomicU64::new(0));
    let until = begun + Duration::from_secs(seconds.into());
    let one = |number: u32| -> Result<(), String> {
        let mut invocation = invocation.clone();
        invocation.arguments.push(number.to_string());
        while Instant::now() < until {
            output_of(&invocation)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|number| scope.spawn(move || one(number))).collect();
        let mut ends = threads.into_iter().map(|thread| thread.join());
        ends.try_for_each(|end| end.unwrap_or_else(|_| Err("a thread of the agent panicked".to_owned())))
    })?;
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(per_second(done.into_inner(), ms))
}

fn per_second(operations: u64, ms: u64) -> Score {
    let milli = u128::from(operations) * 1_000_000 / u128::from(ms.max(1));
    Score { milli_per_s: u64::try_from(milli).unwrap_or(u64::MAX), ms, ..Score::default() }
}

/// Runs a tool to its end.
fn output_of(invocation: &Invocation) -> Result<String, String> {
    let name = invocation.program;
    let mut command = Command::new(name);
    command.args(&invocation.arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    // Some tools print their result to standard error.
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(text) } else { Err(format!("{name}: {}; it said: {}", output.status, last(&text))) }
}

fn no_score(invocation: &Invocation, text: &str) -> String {
    format!("{} printed no result; it said: {}", invocation.program, last(text))
}

/// The last lines of a text.
fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Invocation {
        Invocation { program: "/bin/sh", arguments: vec!["-c".to_owned(), script.to_owned()] }
    }

    #[test]
    fn what_a_tool_said_last_is_told() {
        let failed = output_of(&shell("echo one; echo two >&2; exit 3")).unwrap_err();
        assert!(failed.contains("exit status: 3; it said: one; two"), "{failed}");
        let missing = Invocation { program: "/bin/no-such-tool", arguments: Vec::new() };
        assert!(output_of(&missing).unwrap_err().contains("cannot be started"));
        assert!(again(&shell("echo nothing"), 1, 1).unwrap_err().contains("printed no result; it said: nothing"));
    }

    #[test]
    fn rounds_and_processes_are_counted() {
        let rounds = again(&shell("echo Time: 0.500"), 100, 1).unwrap();
        assert_eq!(rounds.milli_per_s, 200_000);
        assert!(rounds.ms > 0 && rounds.ms.is_multiple_of(500));
        let parallel = in_parallel(&shell("exit 0"), 2, 1).unwrap();
        assert!(parallel.milli_per_s > 0 && parallel.ms >= 1000);
        assert!(in_parallel(&shell("exit 1"), 2, 1).is_err());
    }
}
