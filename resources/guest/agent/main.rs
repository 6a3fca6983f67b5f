// SPDX-License-Identifier: Apache-2.0
//! The agent of a Linux guest: says that it is ready, waits for a line on the console, runs the job that the kernel's command
//! line names, and says what came of it.
//!
//! Waiting is the barrier: the experiment lets all guests begin together. Invariant: whatever happens, its last line is a
//! result or a failure with its reason.

#[path = "../src/cpu_time.rs"]
mod cpu_time;
#[path = "../src/job.rs"]
mod job;
#[path = "../src/line.rs"]
mod line;
#[path = "../src/output/mod.rs"]
mod output;
mod work;

use std::fs;
use std::io;
use std::process::ExitCode;

use cpu_time::CpuTime;
use job::Job;
use line::Line;

/// What the word of the kernel's command line begins with that names the job.
const WORD: &str = "agent=";

fn main() -> ExitCode {
    let line = match run() {
        Ok(result) => result,
        Err(why) => Line::Failed(why),
    };
    println!("{line}");
    if matches!(line, Line::Failed(_)) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run() -> Result<Line, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"));
    let command_line = read("/proc/cmdline")?;
    let job = named(&command_line)?;
    let cpus = cpu_time::cpus(&read("/proc/stat")?);
    work::prepare(&job)?;
    println!("{}", Line::Waiting(cpus));
    let mut begin = String::new();
    match io::stdin().read_line(&mut begin) {
        Ok(1..) => {}
        Ok(0) => return Err("the console ended before the line to begin".to_owned()),
        Err(error) => return Err(format!("the console cannot be read: {error}")),
    }
    let now = || read("/proc/stat").map(|stat| CpuTime::parse(&stat).unwrap_or_default());
    let before = now()?;
    let score = work::carry_out(&job, cpus)?;
    Ok(Line::Result(score, now()?.since(before)))
}

/// The job that a kernel's command line names.
fn named(command_line: &str) -> Result<Job, String> {
    let word = command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix(WORD));
    let word = word.ok_or_else(|| format!("no word {WORD} on the kernel's command line"))?;
    Job::parse(word).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_a_word_of_the_command_line() {
        let job = named("console=ttyS0 quiet agent=dbench,clients=3,seconds=2\n").unwrap();
        assert_eq!(job.to_string(), "dbench,seconds=2,clients=3");
        assert!(named("console=ttyS0").unwrap_err().contains("no word agent="));
        assert!(named("agent=nothing").unwrap_err().contains("no Linux workload `nothing`"));
    }
}
