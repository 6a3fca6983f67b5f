// SPDX-License-Identifier: Apache-2.0
//! `vmm ctl`: every call against a machine, as text and as JSON.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::machine::{Machine, eventually};
use crate::monitor::program;
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("ctl_shows_every_resource_as_text_and_as_json", shows),
        trial("ctl_changes_a_machine_and_its_status_says_whether", changes),
        trial("ctl_creates_a_machine_from_stdin", creates),
    ]
}

fn ctl(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("ctl").args(arguments).arg("--api-sock").arg(&machine.socket);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What a call that succeeds prints.
#[track_caller]
fn told(machine: &Machine, arguments: &[&str]) -> String {
    // Asked again while a host that is busy with other things lets it wait.
    let output = eventually("an answer", || {
        Some(ctl(machine, arguments)).filter(|output| !String::from_utf8_lossy(&output.stderr).contains("(busy 503)"))
    });
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn shows() {
    let machine = Machine::running(2, "ring", &[]);
    for (call, expected) in [
        (["vm"].as_slice(), "state         running"),
        (&["vcpus"], "affinity"),
        (&["vcpu", "1"], "apic_id"),
        (&["topology"], "packages"),
        (&["host"], "kernel"),
        (&["placement"], "rules"),
        (&["pause-loops"], "mechanism"),
        (&["thresholds"], "steal_permille"),
        (&["stats"], "rss_bytes"),
        (&["decisions", "--limit=1"], "total"),
    ] {
        let text = told(&machine, call);
        assert!(text.contains(expected), "{call:?}: {text}");
        let json = told(&machine, &[call, &["--json"]].concat());
        assert!(serde_json::from_str::<Value>(&json).unwrap().is_object(), "{call:?}: {json}");
    }
    assert!(told(&machine, &["metrics"]).ends_with("# EOF\n"));
    assert!(told(&machine, &["openapi"]).starts_with('{'));
    assert!(told(&machine, &["events", "--after=0", "--count=2"]).contains("state=running"));
    let events = told(&machine, &["events", "--after=0", "--count=1", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&events).unwrap()["id"], 1);
    told(&machine, &["serial"]);
    machine.stop();
}

fn changes() {
    let machine = Machine::running(2, "ring", &[]);
    told(&machine, &["pause"]);
    assert!(told(&machine, &["vm"]).contains("state         paused"));
    told(&machine, &["resume"]);
    assert!(told(&machine, &["vcpu", "0", "--affinity=0"]).contains("affinity     0"));
    assert!(told(&machine, &["placement", "--rule=cluster=off"]).contains("cluster      no"));
    assert!(told(&machine, &["pause-loops", "--mode=observe", "--set=bail_after=7"]).contains("observe"));
    assert!(told(&machine, &["thresholds", "--steal-permille=7"]).contains(" 7"));
    assert_eq!(ctl(&machine, &["thresholds", "--steal-permille=1001"]).status.code(), Some(1));
    told(&machine, &["power-button"]);
    let stale = ctl(&machine, &["stop", "--if-match=1"]);
    assert_eq!(stale.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&stale.stderr).contains("stale_generation 412"), "{stale:?}");
    for reading in [["vm", "--if-match=1"], ["events", "--if-match=1"]] {
        assert_eq!(ctl(&machine, &reading).status.code(), Some(2), "{reading:?}: there is nothing to change");
    }
    assert_eq!(ctl(&machine, &["vcpu", "9"]).status.code(), Some(1));
    assert_eq!(ctl(&machine, &["vcpu", "x"]).status.code(), Some(2));
    let nowhere = Command::new(program()).args(["ctl", "vm"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    let stopped = ctl(&machine, &["stop"]);
    let errors = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(stopped.status.success() || errors.contains("(busy 503)"), "{errors}");
    machine.ended().expect(0);
}

fn creates() {
    let machine = Machine::start(&["--api-only"]);
    let mut command = Command::new(program());
    command.args(["ctl", "create", "-", "--api-sock"]).arg(&machine.socket);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"cpus = 3\nprobe = \"report\"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("created"));
    told(&machine, &["start"]);
    let ended = machine.ended().expect(0);
    assert!(ended.output.contains("@probe machine cpus=3"), "{}", ended.output);
}
