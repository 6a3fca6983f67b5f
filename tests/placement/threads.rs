// SPDX-License-Identifier: Apache-2.0
//! Threads are where the plan says.

use libtest_mimic::Trial;
use rustix::process::Signal;
use tempfile::TempDir;
use topology::cpu_set::CpuSet;

use crate::host::{cpus, monitor, report, threads, two_cpus, vcpus};
use crate::{kvm, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("vcpu_threads_are_on_the_cpus_that_explain_names", two_cpus, explained),
        trial("threads_that_are_no_vcpus_keep_off_their_cpus", two_cpus, others_keep_off),
        trial("pinned_threads_are_on_exactly_these_cpus", two_cpus, pinned),
        trial("without_placement_every_thread_may_go_anywhere", kvm, without),
        trial("the_kernel_finds_guest_memory_where_it_was_bound", kvm, memory),
    ]
}

fn explained() {
    let claims = TempDir::new().unwrap();
    let explain = ["placement", "explain", "--cpus", "2", "--format", "json"];
    let explained = monitor(claims.path(), &explain).run().expect(0);
    let plan: serde_json::Value = serde_json::from_str(&explained.output).unwrap();
    let run = monitor(claims.path(), &["--cpus", "2", "--probe", "spin seconds=2", "--report", "run.json"]).start();
    let found = vcpus(run.pid(), 2);
    let ended = run.wait().expect(0);
    let report = report(ended.directory.path());
    for (index, cpus) in found.iter().enumerate() {
        assert_eq!(plan["places"][index]["affinity"], cpus.to_string(), "vCPU {index}");
        assert_eq!(report["vcpus"][index]["placement"]["cpus"], cpus.to_string(), "vCPU {index}");
        assert_eq!(cpus.len(), 1, "a vCPU that is alone on its CPU is pinned to it");
    }
    assert_ne!(found[0], found[1]);
    assert_eq!(report["placement"]["asked"], "auto");
}

fn others_keep_off() {
    let claims = TempDir::new().unwrap();
    let run = monitor(claims.path(), &["--probe", "spin seconds=300"]).start();
    vcpus(run.pid(), 1);
    // The vCPU may be on its way to another CPU; the others follow at the same look.
    crate::host::eventually("the main thread on other CPUs than the vCPU", || {
        let threads = threads(run.pid());
        threads["vmm"].intersection(&threads["vcpu0"]).is_empty()
    });
    run.signal(Signal::TERM);
    run.wait().expect(0);
}

fn pinned() {
    let claims = TempDir::new().unwrap();
    let last = cpus().highest().unwrap();
    let pin = format!("pin={last}");
    let run = monitor(claims.path(), &["--cpus", "2", "--placement", &pin, "--probe", "spin seconds=2"]).start();
    run.wait_for_vcpus(2);
    crate::host::eventually("threads on the pinned CPU", || {
        let threads = threads(run.pid());
        ["vcpu0", "vcpu1"]
            .iter()
            .all(|name| threads.get(*name).is_some_and(|cpus| cpus.to_string() == last.to_string()))
    });
    run.wait().expect(0);
}

fn without() {
    let claims = TempDir::new().unwrap();
    let run = monitor(claims.path(), &["--placement", "none", "--probe", "spin seconds=1"]).start();
    run.wait_for_vcpus(1);
    for (name, found) in threads(run.pid()) {
        assert_eq!(found, cpus(), "{name}");
    }
    run.wait().expect(0);
    assert_eq!(std::fs::read_dir(claims.path()).unwrap().count(), 0, "nothing is claimed");
}

fn memory() {
    let claims = TempDir::new().unwrap();
    let host_node = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_else(|_| "0".to_owned());
    let node: CpuSet<topology::id::HostNode> = host_node.trim().parse().unwrap();
    let node = node.highest().unwrap();
    let numa = format!("cpus=[0],memory=64M,host-node={node}");
    let ended = monitor(claims.path(), &["--numa", &numa, "--report", "run.json"]).run().expect(0);
    let memory = &report(ended.directory.path())["placement"]["memory"][0];
    assert_eq!(
        (memory["policy"].as_str(), memory["host_nodes"].as_str()),
        (Some("bind"), Some(node.to_string().as_str()))
    );
    let found = memory["found_pages"].as_object().unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&node.to_string()], "{memory}");
}
