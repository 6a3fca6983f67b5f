// SPDX-License-Identifier: Apache-2.0
//! `vmm lab` as somebody types it: the monitor's command line on an emulated host, and a shell there (docs/lab.md).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use libtest_mimic::{Completion, Failed, Trial};

use crate::{Set, monitor, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("vmm_lab_runs_a_command_line_on_an_emulated_host", Set::Full, a_command_line),
        trial("vmm_lab_gives_a_shell_on_an_emulated_host", Set::Full, a_shell),
        trial("vmm_lab_leaves_nothing_when_a_signal_ends_it", Set::Full, a_signal),
    ]
}

fn a_command_line() -> Result<Completion, Failed> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(monitor::path());
    command.current_dir(&directory).args(["lab", "--host-numa", "2", "--host-distance", "0:1=15", "--pause-filter"]);
    command.args(["--", "--cpus", "2", "--probe", "ring seconds=0.5", "--report", "ring.json"]);
    let output = command.stdin(Stdio::null()).output()?;
    let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(directory.path().join("ring.json"))?)?;
    // The host shows its nodes only on its console; that every PAUSE exits shows in what was seen of them.
    let pauses = report["vcpus"][0]["pause"]["events"].as_u64().unwrap_or(0);
    let holds = output.status.code() == Some(0)
        && said.contains("@probe done status=ok")
        && !said.contains("lab:")
        && told.contains("attempts 1, QEMU ")
        && report["host"]["kvm"] == "svm"
        && report["workload"]["name"] == "ring"
        && pauses > 0;
    if holds { Ok(Completion::Completed) } else { Err(format!("{}: {said}\n{told}\n{report}", output.status).into()) }
}

fn a_shell() -> Result<Completion, Failed> {
    let mut command = Command::new(monitor::path());
    command.args(["lab", "--shell", "--host-memory", "1024"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn()?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("no pipes".into());
    };
    let mut output = BufReader::new(output);
    let mut said = Vec::new();
    // Typed before the shell is there it would be lost.
    while !String::from_utf8_lossy(&said).contains("lab: ready") {
        if output.read_until(b'\n', &mut said)? == 0 {
            return Err(format!("no shell: {}", String::from_utf8_lossy(&said)).into());
        }
    }
    input.write_all(b"[ -c /dev/kvm ] && echo KVM is $((6 * 7))\nexit\n")?;
    output.read_to_end(&mut said)?;
    let status = child.wait()?;
    let said = String::from_utf8_lossy(&said);
    if status.success() && said.contains("KVM is 42") {
        return Ok(Completion::Completed);
    }
    Err(format!("{status}: {said}").into())
}

fn a_signal() -> Result<Completion, Failed> {
    let directory = tempfile::tempdir()?;
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut command = Command::new(monitor::path());
        command.args(["lab", "--", "--probe", "idle seconds=300"]).env("TMPDIR", directory.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut said = String::new();
        // The guest runs: there is everything that could be left.
        while !said.contains("@probe ready") {
            if output.read_line(&mut said)? == 0 {
                return Err(format!("no guest: {said}").into());
            }
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal)?;
        let status = child.wait()?;
        let left: Vec<_> = std::fs::read_dir(directory.path())?.collect();
        if status.code() != Some(1) || !left.is_empty() {
            return Err(format!("{signal:?}: {status}, left {left:?}").into());
        }
    }
    Ok(Completion::Completed)
}
