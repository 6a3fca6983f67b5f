// SPDX-License-Identifier: Apache-2.0
//! Memory is linear in tasks. Alone in its file, for it looks at the most memory that its process ever had.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]
#![expect(clippy::disallowed_methods, reason = "its scenarios are files")]

use std::fs;

use sim::scenario::Scenario;

/// The most memory this process ever had, in KiB (`VmHWM`, proc_pid_status(5)).
fn most_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs so many VMs of 32 vCPUs on 1024 CPUs under the policy; the most memory that was needed so far, in KiB.
fn run(vms: usize) -> u64 {
    let text = fs::read_to_string("../../resources/scenarios/size-1024-cpus.toml").unwrap();
    let settings = [("vm.0.count", vms.to_string()), ("duration", "\"2ms\"".to_owned())];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let scenario = Scenario::parse_with(&text, &settings).unwrap();
    let outcome = scenario.once(&scenario.host(None).unwrap(), &scenario.arms[0], 1).unwrap();
    assert!(outcome.operations_per_s() > 0.0);
    most_kib()
}

#[test]
fn memory_is_linear_in_tasks() {
    let [few, some, many] = [32, 64, 128].map(run);
    let (small, large) = (some - few, many - some);
    // 1024 and then 2048 tasks more: twice as much more, with room for what an allocator rounds up to.
    assert!(large <= 3 * small + 2048, "{few}, {some}, {many} KiB");
    assert!(large / 2048 < 8, "{large} KiB for 2048 tasks");
}
