// SPDX-License-Identifier: Apache-2.0
//! What is changed while the guest runs, and that the guest follows.

use std::fs;
use std::sync::{Arc, Barrier};
use std::thread;

use api::wire::{Code, Decisions, EventKind, Pause, PauseMode, Placement, PlacementMode, VcpuState, Vcpus, VmState};
use libtest_mimic::Trial;
use serde_json::json;

use crate::machine::{Machine, code, eventually};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("the_pause_mode_changes_while_ring_spins_and_the_counters_follow", pause_mode),
        trial("a_paused_machine_stands_still_and_goes_on", paused),
        trial("an_affinity_is_what_the_kernel_holds_the_thread_to", affinity),
        trial("placement_changes_while_the_guest_runs", placement),
        trial("of_two_changes_of_one_generation_one_wins", conflict),
        trial("a_refused_change_changes_nothing", nothing),
        trial("a_reset_begins_the_same_machine_anew", reset),
        trial("a_power_button_that_nobody_listens_to_is_pressed_all_the_same", button),
        trial("an_nmi_reaches_the_guest_and_its_panic_is_an_event", nmi),
        trial("pause_pressure_and_steal_are_events_from_their_thresholds_on", pressure),
    ]
}

/// Yields and pause events of all vCPUs.
fn counted(machine: &Machine) -> (u64, u64) {
    let vcpus: Vcpus = machine.get("vcpus");
    let sum = |of: fn(&api::wire::PauseCounters) -> u64| vcpus.vcpus.iter().map(|vcpu| of(&vcpu.pause)).sum();
    (sum(|pause| pause.yields.attempted), sum(|pause| pause.events))
}

/// Waits until counters have grown from what they are now.
fn grows(machine: &Machine, what: &str, of: fn((u64, u64)) -> u64) {
    let before = of(counted(machine));
    eventually(what, || (of(counted(machine)) > before + 20).then_some(()));
}

fn pause_mode() {
    // On one CPU everybody who spins has somebody to yield to.
    let machine = Machine::running(4, "ring", &["--placement=pin=0"]);
    grows(&machine, "yields under act", |(yields, _)| yields);
    let decisions: Decisions = machine.get("decisions?limit=5");
    assert!(decisions.total > 0 && decisions.latest.len() == 5 && !decisions.pairs.is_empty(), "{decisions:?}");
    let answer = machine.change("PATCH", "pause", &json!({"mode": "observe"}));
    let pause: Pause = api::client::read(&answer).unwrap();
    assert_eq!(pause.mode, PauseMode::Observe);
    // What was on its way when the mode changed is over once two looks are alike.
    let mut last = counted(&machine).0;
    let settled = eventually("an end of the yields", || {
        grows(&machine, "events under observe", |(_, events)| events);
        let now = counted(&machine).0;
        (std::mem::replace(&mut last, now) == now).then_some(now)
    });
    grows(&machine, "events under observe", |(_, events)| events);
    assert_eq!(counted(&machine).0, settled, "observe does not yield");
    machine.change("PATCH", "pause", &json!({"mode": "act", "mechanism": "yield", "parameters": {"bail_after": 5}}));
    grows(&machine, "yields under act again", |(yields, _)| yields);
    let pause: Pause = machine.get("pause");
    assert_eq!((pause.mode, pause.mechanism.as_str()), (PauseMode::Act, "yield"));
    assert_eq!((pause.parameters["bail_after"].granted, pause.parameters["bail_after"].why.as_str()), (5, "api"));
    machine.stop();
}

fn paused() {
    let machine = Machine::running(2, "spin", &[]);
    machine.state("paused");
    let vm = machine.vm();
    assert_eq!(vm.state, VmState::Paused);
    let held: Vcpus = machine.get("vcpus");
    assert!(held.vcpus.iter().all(|vcpu| vcpu.state == VcpuState::Paused), "{held:?}");
    assert_eq!(machine.get::<Vcpus>("vcpus").vcpus, held.vcpus, "nothing grows while it is paused");
    machine.state("paused");
    assert_eq!(machine.vm().generation, vm.generation, "it was paused already");
    let refusal = machine.client.change::<()>("POST", "/api/v1/vm/nmi", None, None);
    assert_eq!(code(refusal), Code::WrongState);
    machine.state("running");
    eventually("time in the run loop", || (machine.vcpu(0).run_loop_ns > held.vcpus[0].run_loop_ns).then_some(()));
    machine.stop();
}

fn affinity() {
    let machine = Machine::running(2, "spin", &[]);
    let answer = machine.change("PATCH", "vcpus/1", &json!({"affinity": "0"}));
    let vcpu: api::wire::Vcpu = api::client::read(&answer).unwrap();
    assert_eq!(vcpu.affinity.to_string(), "0");
    let path = format!("/proc/{}/status", vcpu.tid.unwrap());
    assert!(fs::read_to_string(path).unwrap().contains("Cpus_allowed_list:\t0\n"));
    for (path, affinity, expected) in [
        ("vcpus/2", "0", Code::NoSuchVcpu),
        ("vcpus/0", "60000", Code::InvalidValue),
        ("vcpus/0", "", Code::InvalidValue),
    ] {
        assert_eq!(
            code(machine.ask("PATCH", path, &json!({ "affinity": affinity }), None)),
            expected,
            "{path} {affinity}"
        );
    }
    let placement: Placement = machine.get("placement");
    assert_eq!(placement.plan[1].rule.as_deref(), Some("held"));
    machine.stop();
}

fn placement() {
    let machine = Machine::running(2, "spin", &[]);
    let answer = machine.change("PATCH", "placement", &json!({"mode": "pin", "pin": "0", "rules": {"cluster": false}}));
    let placement: Placement = api::client::read(&answer).unwrap();
    assert_eq!((placement.mode, placement.rules["cluster"]), (PlacementMode::Pin, false));
    for vcpu in machine.get::<Vcpus>("vcpus").vcpus {
        assert_eq!(vcpu.affinity.to_string(), "0");
    }
    let unknown = machine.ask("PATCH", "placement", &json!({"rules": {"clutser": false}}), None);
    assert_eq!(code(unknown), Code::UnknownField);
    assert_eq!(code(machine.ask("PATCH", "placement", &json!({"mode": "auto", "pin": "0"}), None)), Code::InvalidValue);
    machine.change("PATCH", "placement", &json!({"mode": "auto"}));
    assert_eq!(machine.get::<Placement>("placement").mode, PlacementMode::Auto);
    machine.stop();
}

fn conflict() {
    let machine = Arc::new(Machine::running(1, "spin", &[]));
    for round in 0..10 {
        let generation = machine.vm().generation;
        let (at_once, mut statuses) = (Arc::new(Barrier::new(2)), Vec::new());
        let clients: Vec<_> = [3, 4]
            .map(|number| {
                let (machine, at_once) = (Arc::clone(&machine), Arc::clone(&at_once));
                thread::spawn(move || {
                    at_once.wait();
                    let body = json!({"parameters": {"bail_after": number}});
                    (number, machine.ask("PATCH", "pause", &body, Some(generation)))
                })
            })
            .into_iter()
            .collect();
        let mut won = 0;
        for client in clients {
            let (number, answer) = client.join().unwrap();
            match answer {
                Ok(answer) => {
                    won = number;
                    statuses.push(answer.head.status);
                }
                refusal => {
                    assert_eq!(code(refusal), Code::StaleGeneration);
                    statuses.push(412);
                }
            }
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
        assert_eq!(machine.get::<Pause>("pause").parameters["bail_after"].granted, won, "the one that won holds");
        assert_eq!(machine.vm().generation.0, generation.0 + 1);
    }
    Arc::try_unwrap(machine).ok().unwrap().stop();
}

fn nothing() {
    let machine = Machine::running(1, "spin", &[]);
    let (vm, pause) = (machine.vm(), machine.get::<Pause>("pause"));
    for (body, expected) in [
        (json!({"mode": "kernel", "parameters": {"bail_afer": 5}}), Code::UnknownField),
        (json!({"mode": "kernel", "parameters": {"bail_after": 0}}), Code::InvalidValue),
        (json!({"mode": "kernel", "mechanism": "wish"}), Code::InvalidValue),
        (json!({"mode": "kernel", "parameters": {"port_spins": 5}}), Code::NotAtRunTime),
        (json!({"mood": "kernel"}), Code::UnknownField),
    ] {
        assert_eq!(code(machine.ask("PATCH", "pause", &body, None)), expected, "{body}");
    }
    assert_eq!(code(machine.ask("PUT", "vm", &json!({"cpus": 2}), None)), Code::AlreadyExists);
    assert_eq!((machine.vm().generation, machine.get::<Pause>("pause")), (vm.generation, pause));
    machine.stop();
}

fn reset() {
    let machine = Machine::start(&["--cpus=2", "--probe=idle seconds=300 report=lines"]);
    let banners = || {
        let serial = machine.client.send("GET", "/api/v1/serial", &[], None).unwrap().body;
        String::from_utf8_lossy(&serial).matches("@probe machine").count()
    };
    eventually("a guest that has started", || (banners() == 1).then_some(()));
    let before = machine.vm();
    machine.press("reset");
    let after = eventually("a machine that runs again", || {
        Some(machine.vm()).filter(|vm| vm.state == VmState::Running && vm.generation > before.generation)
    });
    assert_eq!(after.pid, before.pid);
    assert_eq!(after.configuration, before.configuration);
    eventually("a guest that has started again", || (banners() == 2).then_some(()));
    machine.stop();
}

fn button() {
    let machine = Machine::running(1, "spin", &[]);
    machine.press("power-button");
    assert_eq!(machine.vm().state, VmState::Running);
    machine.stop();
}

fn nmi() {
    let machine = Machine::running(1, "spin", &[]);
    let events = machine.client.events(Some(0)).unwrap();
    machine.press("nmi");
    let kinds: Vec<EventKind> = events.map_while(Result::ok).map(|event| event.what).collect();
    assert!(kinds.contains(&EventKind::GuestPanic { crash_loaded: false }), "{kinds:?}");
    let last = kinds.last().unwrap();
    assert!(matches!(last, EventKind::StateChanged { state: VmState::Stopped, .. }), "{kinds:?}");
    machine.ended().expect(34);
}

fn pressure() {
    // On one CPU there is always somebody who waits for it, and somebody who spins.
    let told = "--api-thresholds=pause-events-per-s=1,steal-permille=1";
    let machine = Machine::running(2, "ring", &["--placement=pin=0", told]);
    let (mut pressed, mut stolen) = (false, false);
    for event in machine.client.events(Some(0)).unwrap().map_while(Result::ok) {
        match event.what {
            EventKind::PausePressure { above: true, events_per_s, threshold_per_s: 1 } => pressed |= events_per_s > 0,
            EventKind::Steal { above: true, permille, threshold_permille: 1 } => stolen |= permille > 0,
            _ => {}
        }
        if pressed && stolen {
            break;
        }
    }
    assert!(pressed && stolen, "pressure was told: {pressed}, steal: {stolen}");
    machine.stop();
}
