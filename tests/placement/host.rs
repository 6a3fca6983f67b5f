// SPDX-License-Identifier: Apache-2.0
//! What this machine has, and what its kernel says of a monitor that runs on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use crate::monitor::{Monitor, program};
use crate::{Missing, kvm};

/// Far more than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// CPUs that this process may use.
pub(crate) fn cpus() -> CpuSet<HostCpu> {
    allowed(&fs::read_to_string("/proc/self/status").unwrap())
}

fn allowed(status: &str) -> CpuSet<HostCpu> {
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().parse().unwrap()
}

/// For tests in which there is something to choose.
pub(crate) fn two_cpus() -> Missing {
    kvm().or_else(|| (cpus().len() < 2).then(|| format!("needs two CPUs, this process may use {}", cpus())))
}

/// A monitor with these arguments that knows of the claims in `directory` only.
pub(crate) fn monitor(directory: &Path, arguments: &[&str]) -> Monitor {
    let mut command = Command::new(program());
    command.args(arguments).env("VMM_CLAIMS_DIR", directory);
    Monitor::of(command)
}

/// CPUs that the kernel allows each thread of a process, by the thread's name.
pub(crate) fn threads(pid: Pid) -> BTreeMap<String, CpuSet<HostCpu>> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap().flatten() {
        // A thread may end while it is looked at.
        let read = |file: &str| fs::read_to_string(task.path().join(file));
        if let (Ok(name), Ok(status)) = (read("comm"), read("status")) {
            threads.insert(name.trim_end().to_owned(), allowed(&status));
        }
    }
    threads
}

/// CPUs that the kernel allows the vCPU threads, by index, once there are as many as `count`.
pub(crate) fn vcpus(pid: Pid, count: usize) -> Vec<CpuSet<HostCpu>> {
    let mut found = Vec::new();
    eventually("vCPU threads", || {
        let threads = threads(pid);
        found = (0..count).map_while(|index| threads.get(&format!("vcpu{index}")).cloned()).collect();
        // The monitor goes on to this thread, or to the guest's end, once the vCPUs are where they belong.
        found.len() == count && (threads.contains_key("placement") || cpus().len() == 1)
    });
    found
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The report that a monitor left in its directory.
pub(crate) fn report(directory: &Path) -> serde_json::Value {
    let path: PathBuf = directory.join("run.json");
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}
