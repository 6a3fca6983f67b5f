// SPDX-License-Identifier: Apache-2.0
//! The command line of the built binary, as far as it goes without KVM: exit statuses, streams, and nothing left behind.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn vmm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmm")).args(args).stdin(Stdio::null()).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command speaks UTF-8")
}

/// A directory of its own for a test, removed when it goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vmm-command-line-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory is there").count()
}

#[test]
fn a_machine_that_checks_ends_with_0_and_leaves_nothing() {
    let scratch = Scratch::new("check");
    let (report, serial) = (scratch.file("run.json"), format!("file={}", scratch.file("log")));
    let output = vmm(&["--check", "--cpus", "32", "--numa", "4", "--report", &report, "--serial", &serial]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((output.stdout.len(), output.stderr.len(), entries(&scratch.0)), (0, 0, 0));
}

#[test]
fn what_is_wrong_ends_with_2_and_an_error_on_stderr_alone() {
    for (args, parts) in [
        (&["--check", "--cpus", "0"][..], &["0 CPUs", "at least 1"][..]),
        (&["--check", "--cpus", "4097"], &["4097 CPUs", "4096"]),
        (&["--check", "--memory", "0"], &["0 bytes of memory", "--memory"]),
        (&["--check", "--memory", "4097"], &["4097", "4096-byte pages"]),
        (&["--check", "--numa", "cpus=[0-1],memory=1G"], &["node 0 names CPU 1"]),
        (&["--check", "--cpus", "2", "--numa", "cpus=[0],memory=1G"], &["CPUs 1 are in no NUMA node"]),
        (&["--check", "--cpus", "2", "--numa", "2", "--numa-distance", "0:1=9"], &["0:1=9", "use 11 to 254"]),
        (&["--check", "--kernel", "/"], &["--kernel /", "directory"]),
        (&["--check", "--report", "/absent/run.json"], &["--report /absent/run.json", "No such file"]),
        (&["--check", "--config", "/absent.toml"], &["--config /absent.toml", "No such file"]),
        (&["--cpu", "4"], &["--cpu", "--cpus"]),
        (&["frobnicate"], &["frobnicate"]),
    ] {
        let output = vmm(args);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{args:?}: {error} should say {part}"));
    }
}

#[test]
fn what_is_printed_is_accepted_back() {
    let scratch = Scratch::new("print");
    let flags =
        ["--cpus=8,threads=2", "--numa=cpus=[0-3],memory=1G", "--numa=cpus=[4-7],memory=1G", "--numa-distance=0:1=21"];
    for format in ["--print-config", "--print-config=json"] {
        let first = vmm(&[&flags[..], &[format]].concat());
        assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
        let file = scratch.file("machine");
        fs::write(&file, &first.stdout).expect("a file");
        let second = vmm(&["--config", &file, "--check", format]);
        assert_eq!(second.status.code(), Some(0), "{}", text(&second.stderr));
        assert_eq!(text(&second.stdout), text(&first.stdout));
    }
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
    let scratch = Scratch::new("key");
    let file = scratch.file("machine.toml");
    fs::File::create(&file).and_then(|mut out| out.write_all(b"cpus = 4\nmemroy = \"1G\"\n")).expect("a file");
    let output = vmm(&["--config", &file, "--check"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("line 2: unknown key `memroy`, did you mean `memory`?"), "{error}");
}

#[test]
fn help_and_version_go_to_stdout_and_end_with_0() {
    for flag in ["--help", "-h", "--version", "-V"] {
        let output = vmm(&[flag]);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{flag}");
        assert!(!output.stdout.is_empty(), "{flag}");
    }
}

#[test]
fn the_host_is_described_whatever_it_is() {
    let output = vmm(&["host", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let host: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(host["schema"], 1);
    assert!(host["findings"].as_array().is_some_and(|findings| findings.len() > 5));
    assert!(text(&vmm(&["host"]).stdout).contains("kvm.device"));
}
