// SPDX-License-Identifier: Apache-2.0
//! Everything that can be looked at, against the kernel and against each other.

use std::fs;

use api::wire::{Decisions, Host, Pause, PauseMode, Placement, Stats, Topology, VcpuState, Vcpus, VmState};
use libtest_mimic::Trial;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use crate::machine::{Machine, eventually};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("every_resource_of_a_running_machine_agrees_with_the_kernel", kernel),
        trial("a_halt_is_halted_time_while_it_lasts", halted),
        trial("every_path_of_the_document_that_is_read_answers", paths),
        trial("255_vcpus_are_scraped_with_their_labels", scrape),
        trial("without_the_flags_there_is_no_api_thread", nothing),
    ]
}

fn status(machine: &Machine, tid: i32, key: &str) -> String {
    let path = format!("/proc/{}/task/{tid}/status", machine.started().pid().as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&format!("{key}:"))).unwrap().trim().to_owned()
}

fn kernel() {
    let machine = Machine::running(2, "ring", &["--numa=2"]);
    let vm = machine.vm();
    assert_eq!((vm.state, vm.cpus, vm.nodes, vm.memory_bytes), (VmState::Running, 2, 2, 512 << 20));
    assert_eq!(vm.pid, machine.started().pid().as_raw_nonzero().get().cast_unsigned());
    let vcpus: Vcpus = machine.get("vcpus");
    for (index, vcpu) in (0..).zip(&vcpus.vcpus) {
        let tid = vcpu.tid.unwrap();
        assert_eq!((vcpu.index.0, status(&machine, tid, "Name")), (index, format!("vcpu{index}")));
        let allowed: CpuSet<HostCpu> = status(&machine, tid, "Cpus_allowed_list").parse().unwrap();
        assert_eq!(vcpu.affinity, allowed);
        assert!(vcpu.last_cpu.is_some_and(|cpu| vcpu.affinity.contains(cpu)), "{vcpu:?}");
        let accounted: u64 = vcpu.ledger_ns.terms().iter().map(|(_, ns)| ns).sum();
        assert_eq!(accounted, vcpu.run_loop_ns, "the ledger adds up");
        assert_eq!(vcpu.node.0, index);
    }
    let topology: Topology = machine.get("topology");
    assert_eq!((topology.vcpus.len(), topology.nodes.len()), (2, 2));
    let host: Host = machine.get("host");
    let online: CpuSet<HostCpu> = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
    assert_eq!(host.cpus.len(), online.len());
    assert_eq!(host.kernel, fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    let placement: Placement = machine.get("placement");
    assert_eq!(placement.plan.len(), 2);
    let pause: Pause = machine.get("pause");
    assert_eq!((pause.mode, pause.mechanism.as_str()), (PauseMode::Act, "auto"));
    assert!(pause.sources.iter().any(|source| source.name == "port" && source.granted), "{:?}", pause.sources);
    let stats: Stats =
        eventually("an exit", || Some(machine.get::<Stats>("stats")).filter(|stats| !stats.exits.is_empty()));
    assert!(stats.monitor.threads >= 3 && stats.monitor.rss_bytes > 0, "{:?}", stats.monitor);
    assert_eq!(machine.get::<Decisions>("decisions?limit=0").latest, []);
    machine.stop();
}

/// KVM books a halt when it ends; this one does not end.
fn halted() {
    let machine = Machine::running(2, "idle", &[]);
    let earlier = eventually("a halt", || Some(machine.vcpu(1)).filter(|vcpu| vcpu.ledger_ns.halted > 0));
    eventually("half a second", || {
        let now = machine.vcpu(1);
        let (passed, halted) = (now.run_loop_ns - earlier.run_loop_ns, now.ledger_ns.halted - earlier.ledger_ns.halted);
        (passed > 500_000_000).then(|| assert!(halted > passed / 2, "{halted} of {passed} ns: {now:?}"))
    });
    machine.stop();
}

fn paths() {
    let machine = Machine::running(1, "idle", &[]);
    let document: serde_json::Value = machine.client.get("/openapi.json").unwrap();
    // The page names its files; any of them will do.
    let page = machine.client.send("GET", "/", &[], None).unwrap().body;
    let page = String::from_utf8(page).unwrap();
    let file =
        page.split("/page/").nth(1).and_then(|rest| rest.split('"').next()).expect("a file of the page").to_owned();
    let mut looked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        // A stream goes on until its reader goes.
        let streams = path.ends_with("/stream") || path.ends_with("/events");
        if methods.get("get").is_some() && !streams {
            let answer =
                machine.client.send("GET", &path.replace("{index}", "0").replace("{file}", &file), &[], None).unwrap();
            assert_eq!(answer.head.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
            looked += 1;
        }
    }
    assert!(looked > 10, "{looked} paths");
    machine.stop();
}

fn scrape() {
    let machine = Machine::running(255, "idle", &["--memory=256M"]);
    let page = machine.client.send("GET", "/metrics", &[], None).unwrap();
    let page = String::from_utf8(page.body).unwrap();
    assert!(page.ends_with("# EOF\n"), "OpenMetrics ends so");
    let of_last = page.lines().filter(|line| line.contains("vcpu=\"254\"")).count();
    assert!(of_last > 10, "{of_last} series of the last vCPU");
    let vcpus: Vcpus = machine.get("vcpus");
    assert_eq!(vcpus.vcpus.len(), 255);
    assert!(vcpus.vcpus.iter().all(|vcpu| vcpu.state != VcpuState::Stopped));
    machine.stop();
}

fn nothing() {
    let started = crate::monitor::Monitor::new(["--cpus=2", "--probe=idle seconds=300 report=none"]).start();
    started.wait_for_vcpus(2);
    let names = started.thread_names();
    started.signal(rustix::process::Signal::INT);
    started.wait().expect(0);
    assert!(!names.iter().any(|name| name.starts_with("api") || name.starts_with("tokio")), "{names:?}");
}
