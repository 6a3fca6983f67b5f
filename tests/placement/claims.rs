// SPDX-License-Identifier: Apache-2.0
//! Monitors side by side: who has which CPU.

use std::fs;

use libtest_mimic::Trial;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::host::{cpus, eventually, monitor, two_cpus, vcpus};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("two_monitors_never_share_a_cpu_while_one_is_free", two_cpus, side_by_side),
        trial("a_full_host_is_shared_and_that_is_said", two_cpus, full),
        trial("exclusive_cpus_are_refused_to_others_and_by_others", two_cpus, exclusive),
        trial("the_claim_of_a_killed_monitor_is_removed", two_cpus, killed),
    ]
}

fn side_by_side() {
    let claims = TempDir::new().unwrap();
    let half = (cpus().len() / 2).to_string();
    let start = || monitor(claims.path(), &["--cpus", &half, "--probe", "spin seconds=4"]).start();
    // At the same time: whoever decides first must be seen by the other.
    let (first, second) = (start(), start());
    let count = cpus().len() / 2;
    let of_first = vcpus(first.pid(), count);
    for cpus in vcpus(second.pid(), count) {
        assert!(of_first.iter().all(|other| other.intersection(&cpus).is_empty()), "{of_first:?} and {cpus}");
    }
    first.wait().expect(0);
    second.wait().expect(0);
}

fn full() {
    let claims = TempDir::new().unwrap();
    let all = cpus().len().to_string();
    let first = monitor(claims.path(), &["--cpus", &all, "--probe", "spin seconds=6"]).start();
    vcpus(first.pid(), cpus().len());
    let pid = first.pid().as_raw_nonzero().to_string();
    let listed = monitor(claims.path(), &["placement"]).run().expect(0);
    assert!(listed.output.contains(&format!("process {pid} has CPUs {} for {all} vCPUs", cpus())), "{}", listed.output);
    let second = monitor(claims.path(), &["--probe", "spin seconds=1"]).run().expect(0);
    assert!(second.errors.contains(&format!("are shared with other VMs (processes {pid})")), "{}", second.errors);
    first.wait().expect(0);
}

fn exclusive() {
    let claims = TempDir::new().unwrap();
    let all = cpus().len().to_string();
    let keep = ["--cpus", &all, "--placement", "auto,exclusive", "--probe", "spin seconds=4"];
    let first = monitor(claims.path(), &keep).start();
    vcpus(first.pid(), cpus().len());
    let refused = monitor(claims.path(), &[]).run().expect(1);
    assert!(refused.errors.contains("is claimed exclusively by other VMs"), "{}", refused.errors);
    let pin = format!("pin={}", cpus().lowest().unwrap());
    let refused = monitor(claims.path(), &["--placement", &pin]).run().expect(1);
    assert!(refused.errors.contains("is claimed exclusively by other VMs"), "{}", refused.errors);
    first.wait().expect(0);
    let shared = monitor(claims.path(), &["--placement", &pin, "--probe", "spin seconds=4"]).start();
    await_claim(&claims, shared.pid());
    let refused = monitor(claims.path(), &["--placement", &format!("{pin},exclusive")]).run().expect(1);
    let pid = shared.pid().as_raw_nonzero();
    assert!(refused.errors.contains(&format!("are claimed by other VMs (processes {pid})")), "{}", refused.errors);
    shared.wait().expect(0);
}

/// Waits until a monitor has claimed its CPUs.
fn await_claim(claims: &TempDir, pid: rustix::process::Pid) {
    eventually("a claim", || claims.path().join(format!("{}.claim", pid.as_raw_nonzero())).exists());
}

fn killed() {
    let claims = TempDir::new().unwrap();
    let first = monitor(claims.path(), &["--probe", "spin seconds=60"]).start();
    vcpus(first.pid(), 1);
    let claim = claims.path().join(format!("{}.claim", first.pid().as_raw_nonzero()));
    assert!(claim.exists());
    first.signal(Signal::KILL);
    first.wait().expect(137);
    assert!(claim.exists(), "a killed process removes nothing");
    monitor(claims.path(), &[]).run().expect(0);
    assert!(!claim.exists(), "the next one does");
    eventually("no claim is left", || fs::read_dir(claims.path()).unwrap().count() == 1);
}
