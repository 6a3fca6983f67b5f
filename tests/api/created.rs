// SPDX-License-Identifier: Apache-2.0
//! `--api-only`: a machine that is made, started and ended by a client.

use api::wire::{Code, EventKind, Generation, VmState};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::json;

use crate::machine::{Machine, code, eventually, refused};
use crate::monitor::Monitor;
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_machine_is_created_started_and_ended_by_a_client", created),
        trial("a_machine_that_cannot_be_is_refused_and_another_created", refused_first),
        trial("waiting_for_a_machine_ends_with_a_signal", signalled),
        trial("flags_that_contradict_the_api_are_usage_errors", usage),
    ]
}

fn created() {
    let machine = Machine::start(&["--api-only"]);
    assert_eq!(code(machine.client.change::<()>("GET", "/api/v1/vm", None, None)), Code::NoVm);
    assert_eq!(code(machine.ask("PUT", "vm/state", &json!({"state": "running"}), None)), Code::NoVm);
    let answer = machine.change("PUT", "vm", &json!({"cpus": 2, "probe": "report", "memory": "64M"}));
    assert_eq!((answer.head.status, answer.head.header("location")), (201, Some("/api/v1/vm")));
    let vm = machine.vm();
    assert_eq!((vm.state, vm.cpus, vm.uptime_ns), (VmState::Created, 2, None));
    let events = machine.client.events(Some(0)).unwrap();
    machine.state("running");
    let states = events.map_while(Result::ok).filter_map(|event| match event.what {
        EventKind::StateChanged { state, .. } => Some(state),
        _ => None,
    });
    let states: Vec<VmState> = states.collect();
    assert_eq!(states, [VmState::Created, VmState::Running, VmState::Stopped]);
    let ended = machine.ended().expect(0);
    ended.expect_reason("guest powered off");
    assert!(ended.output.contains("@probe machine cpus=2"), "{}", ended.output);
}

fn refused_first() {
    let machine = Machine::start(&["--api-only"]);
    let (_, problem) = refused(machine.ask("PUT", "vm", &json!({"cpsu": 2}), None));
    assert_eq!(problem.code, Code::UnknownField);
    assert!(problem.hint.is_some_and(|hint| hint.contains("cpus")), "the nearest key is named");
    for (body, expected) in [
        (json!({"cpus": 0}), Code::InvalidValue),
        (json!({"kernel": "/nowhere/vmlinux"}), Code::InvalidValue),
        (json!({"api_sock": "x"}), Code::NotAtRunTime),
    ] {
        assert_eq!(code(machine.ask("PUT", "vm", &body, None)), expected, "{body}");
    }
    assert_eq!(
        code(machine.ask("PUT", "vm", &json!({"cpus": 1}), Some(Generation(77)))),
        Code::StaleGeneration,
        "there is no machine of a generation"
    );
    machine.change("PUT", "vm", &json!({"cpus": 1, "probe": "idle seconds=300"}));
    assert_eq!(code(machine.ask("PUT", "vm/state", &json!({"state": "paused"}), None)), Code::WrongState);
    // Before it was started as well as after.
    machine.stop();
}

fn signalled() {
    let machine = Machine::start(&["--api-only"]);
    machine.started().signal(Signal::TERM);
    machine.ended().expect(0);
    let machine = Machine::start(&["--api-only"]);
    machine.change("PUT", "vm", &json!({"cpus": 1}));
    machine.started().signal(Signal::INT);
    eventually("the end", || machine.client.send("GET", "/api/v1/vm", &[], None).is_err().then_some(()));
    machine.ended().expect(0);
}

fn usage() {
    for (arguments, told) in [
        (["--api-only", "--cpus=1"].as_slice(), "--api-sock"),
        (&["--api-only", "--api-sock=s", "--cpus=2"], "drop the flags"),
        (&["--api-listen=127.0.0.1:0"], "--api-token-file"),
        (&["--api-listen=0.0.0.0:80", "--api-token-file=t"], "127.0.0.1"),
        (&["--api-token-file=t"], "--api-listen"),
    ] {
        let ended = Monitor::new(arguments.iter().copied()).run().expect(2);
        assert!(ended.errors.contains(told), "{arguments:?}: {}", ended.errors);
        assert!(ended.files().is_empty(), "{arguments:?}: {:?}", ended.files());
    }
}
