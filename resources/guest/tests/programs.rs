// SPDX-License-Identifier: Apache-2.0
//! The embedded programs, run on this machine: what ebizzy prints is what its parser reads, and the agent says why it fails.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use guest::job::Tool;
use guest::line::Line;
use guest::output::score;

/// Runs an embedded program.
fn run(program: &[u8], arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("program");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    // `sh` starts it, so that a file still open for writing in another thread's child is no reason to fail.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "p=$0; for n in 1 2 3 4 5; do \"$p\" \"$@\"; s=$?; [ $s = 126 ] || exit $s; sleep 0.2; done; exit 126",
    ]);
    command.arg(&path).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn ebizzy_runs_here_and_its_output_is_its_score() {
    for (option, where_copies_are) in [("-m", "by mmap"), ("-M", "in the heap")] {
        let output = run(guest::EBIZZY, &[option, "-S", "1", "-t", "2", "-s", "65536", "-v"]);
        let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{told}");
        let score = score(Tool::Ebizzy, &text).unwrap_or_else(|| panic!("{text}"));
        assert!(score.milli_per_s > 0 && score.ms >= 1000, "{text}");
        assert!(told.contains(&format!("copies {where_copies_are}")), "{told}");
        let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["real", "user", "sys"]);
    }
}

#[test]
fn ebizzy_refuses_what_it_does_not_know() {
    let output = run(guest::EBIZZY, &["-z"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("Usage: ebizzy"));
}

#[test]
fn an_agent_without_a_job_says_so() {
    let output = run(guest::AGENT, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let Some(Line::Failed(why)) = Line::parse(text.trim_end().as_bytes()) else { panic!("{text}") };
    assert!(why.contains("agent=") && !output.status.success(), "{why}");
}
