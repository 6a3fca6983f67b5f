// SPDX-License-Identifier: Apache-2.0
//! The guest's serial port between whatever stdin and stdout are.

use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;

use crate::monitor::{self, Monitor};
use crate::{kvm, seen, trial};

const ECHO: [&str; 2] = ["--probe", "echo report=none"];

/// One test for each kind of stream.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("echo_from_a_pipe", kvm, || echoes(Monitor::new(ECHO).input(&long_input()))),
        trial("echo_from_a_file", kvm, || echoes(Monitor::new(ECHO).stdin(monitor::file_with(&long_input())))),
        trial("input_that_ends_does_not_end_the_guest", kvm, no_input),
        trial("stdin_that_is_closed_does_not_matter", kvm, closed_stdin),
        trial("stdout_without_a_reader_ends_the_run_with_an_error", kvm, stdout_without_reader),
        trial("stdout_that_is_closed_does_not_matter", kvm, closed_stdout),
        trial("stdout_that_is_full_ends_the_run_with_an_error", kvm, full_stdout),
        trial("a_reader_that_stands_still_does_not_keep_a_signal_from_ending_the_run", kvm, stopped_reader),
        trial("a_reader_that_comes_late_gets_everything", kvm, late_reader),
        trial("serial_file_that_is_a_pipe_without_a_reader_is_refused", kvm, serial_pipe),
        trial("a_file_at_its_size_limit_ends_the_run_with_an_error", kvm, limited_file),
        trial("serial_none_is_silent_and_still_observed", kvm, serial_none),
        trial("serial_file_holds_what_stdout_would", kvm, serial_file),
    ]
}

/// More than the port's FIFO and any single read hold, then the word that ends the guest.
fn long_input() -> Vec<u8> {
    let lines = (0..200).map(|number| format!("line {number} of the input\n"));
    lines.chain(["quit\n".to_owned()]).collect::<String>().into_bytes()
}

fn echoes(monitor: Monitor) {
    let ended = monitor.run().expect(0);
    let echoed = ended.output.replace('\r', "");
    let input = String::from_utf8(long_input()).unwrap();
    assert!(echoed.contains(&input), "not echoed in order and whole:\n{echoed}");
}

fn no_input() {
    let monitor = Monitor::new(["--probe", "spin seconds=0.2 report=none"]);
    let ended = monitor.stdin(fs::File::open("/dev/null").unwrap()).run().expect(0);
    assert!(ended.output.contains("@probe result workload=spin"), "{}", ended.output);
    let started = Monitor::new(ECHO).stdin(fs::File::open("/dev/null").unwrap()).start();
    started.wait_for_vcpus(1);
    started.signal(Signal::INT);
    started.wait().expect(0);
}

/// The monitor, started by a shell that does `redirection` first.
fn redirected(redirection: &str, arguments: &[&str]) -> Monitor {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]).arg(monitor::program()).args(arguments);
    Monitor::of(shell)
}

fn closed_stdin() {
    let ended = redirected("<&-", &["--probe", "report report=lines"]).run().expect(0);
    assert!(ended.output.contains("@probe done status=ok"), "{}", ended.output);
}

fn stdout_without_reader() {
    let ended = Monitor::new(["--cpus=4", "--numa=2"]).stdout(monitor::broken_pipe()).run().expect(1);
    for part in ["console cannot be written", "Broken pipe", "--serial file=PATH or none"] {
        assert!(ended.errors.contains(part), "{} should say {part}", ended.errors);
    }
}

fn closed_stdout() {
    let ended = redirected(">&-", &["--probe", "report"]).run().expect(0);
    assert_eq!(ended.output, "");
}

fn full_stdout() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = Monitor::new(["--probe", "report"]).stdout(full).run().expect(1);
    assert!(ended.errors.contains("No space left on device"), "{}", ended.errors);
}

const FILLED_WITH: u8 = b'.';

/// A monitor whose stdout is a pipe that takes nothing until it is read, and has been asked to.
fn held_up(arguments: &[&str]) -> (monitor::Started, PipeReader) {
    let (reader, mut writer) = io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[FILLED_WITH; 512]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    let started = Monitor::new(arguments).stdout(writer).start();
    started.wait_for_vcpus(2);
    // Long enough for the guest to have something to say.
    thread::sleep(Duration::from_millis(500));
    (started, reader)
}

fn stopped_reader() {
    let (started, _reader) = held_up(&["--cpus=2", "--probe", "report report=lines"]);
    started.signal(Signal::INT);
    // The reader never reads: waiting for it would have no end.
    started.wait().expect(0).expect_reason("stopped by the operator");
}

fn late_reader() {
    let (started, mut reader) = held_up(&["--cpus=2", "--probe", "report report=lines"]);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    started.wait().expect(0);
    let output = String::from_utf8(bytes).unwrap();
    assert_eq!(seen::records(output.trim_start_matches(char::from(FILLED_WITH))).len(), 12, "{output}");
}

fn serial_pipe() {
    let monitor = Monitor::new(["--serial=file=pipe", "--probe", "report"]);
    assert!(Command::new("mkfifo").arg(monitor.directory().join("pipe")).status().unwrap().success());
    let ended = monitor.run().expect(1);
    assert!(ended.errors.contains("cannot be connected to file=pipe"), "{}", ended.errors);
    assert_eq!(ended.files(), ["pipe"]);
}

fn limited_file() {
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=100").arg(monitor::program()).args(["--serial=file=log", "--probe", "report"]);
    let ended = Monitor::of(limited).run().expect(1);
    assert!(ended.errors.contains("File too large"), "{}", ended.errors);
    assert_eq!(ended.files(), ["log"]);
}

fn serial_none() {
    let monitor = Monitor::new(["--cpus=2", "--serial=none", "--report=run.json", "--probe", "report"]);
    let ended = monitor.run().expect(0);
    assert_eq!(ended.output, "");
    let report = fs::read_to_string(ended.directory.path().join("run.json")).unwrap();
    assert!(report.contains("\"seen\""), "{report}");
}

fn serial_file() {
    let ended = Monitor::new(["--cpus=2", "--serial=file=log", "--probe", "report report=lines"]).run().expect(0);
    assert_eq!(ended.output, "");
    let log = fs::read_to_string(ended.directory.path().join("log")).unwrap();
    // Boot, ready, 2 CPUs, 4 caches, node, distance, machine, done.
    assert_eq!(seen::records(&log).len(), 12, "{log}");
    assert_eq!(ended.files(), ["log"]);
}
