// SPDX-License-Identifier: Apache-2.0
//! A lab host that stops by itself is no verdict on a guest: by default the test is ignored with the reason, and where the
//! whole matrix was asked for it fails.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Completion, Failed, Trial};

use crate::{Set, monitor, trial};

/// In the place of the emulator: notes the start, says that it is ready and dies.
const DIES: &str = r#"#!/bin/sh
[ "$1" = --version ] && exec echo "QEMU emulator version 11.0.0"
echo start >>"$0.starts"
for argument in "$@"; do
    case $argument in file,*path=*/heartbeat) echo ready >"${argument#*path=}" ;; esac
done
"#;

/// The test of a guest that is run on it.
const GUEST: &str = "linux_6.12_cloud-amd64_boots_without_a_complaint";

pub(crate) fn trials() -> Vec<Trial> {
    let name = "a_lab_host_that_stopped_twice_ignores_a_test_of_the_small_set_and_fails_the_whole_matrix";
    vec![trial(name, Set::Small, lab_hosts_that_die)]
}

fn lab_hosts_that_die() -> Result<Completion, Failed> {
    let directory = tempfile::tempdir()?;
    let emulator = directory.path().join("emulator");
    std::fs::write(&emulator, DIES)?;
    std::fs::set_permissions(&emulator, std::fs::Permissions::from_mode(0o755))?;
    let reason = "the lab host stopped by itself on each of 2 starts, the last time because the emulator ended";

    let (success, said) = run(&emulator, "small")?;
    wanted(success && said.contains("... ignored") && said.contains(reason), "ignored with the reason", &said)?;
    let (success, said) = run(&emulator, "full")?;
    wanted(!success && said.contains("... FAILED"), "a failure", &said)?;

    let starts = std::fs::read_to_string(directory.path().join("emulator.starts"))?.lines().count();
    wanted(starts == 4, "two starts a run", &format!("{starts} starts in two runs"))?;
    Ok(Completion::Completed)
}

/// This program once more, with the test of a guest alone and this emulator.
fn run(emulator: &Path, set: &str) -> Result<(bool, String), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", GUEST]).env("VMM", monitor::path()).env("VMM_LAB_QEMU", emulator).env("VMM_LAB", set);
    let output = command.output()?;
    Ok((
        output.status.success(),
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
    ))
}

fn wanted(holds: bool, what: &str, said: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(format!("wanted {what}; it said:\n{said}").into()) }
}
