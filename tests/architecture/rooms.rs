// SPDX-License-Identifier: Apache-2.0
//! Which room may know which other, and which crates of the outside it must not know.
//!
//! Invariant: a room that is not listed here may depend on no other, and only the monitor and the tests may depend on it.

use crate::manifest::Member;

/// A room, and the rooms it may depend on. A room below `resources` is an input of the monitor.
const ARROWS: [(&str, &[&str]); 8] = [
    ("vmm", &["api", "devices", "policy", "policy/sim", "topology", "experiment", "lab"]),
    ("api", &["topology"]),
    ("experiment", &["topology"]),
    ("policy", &["topology"]),
    ("policy/sim", &["policy", "topology"]),
    ("devices", &[]),
    ("lab", &[]),
    ("topology", &[]),
];

/// May depend on every room; no room depends on it.
const TESTS: &str = "tests";

/// What guests are made of; the monitor and the tests may use it.
const RESOURCES: &str = "resources/";

/// Rooms that do no I/O of their own, read no clock, start no thread and hold no `unsafe`.
pub(crate) const WITHOUT_OUTSIDE: [&str; 4] = ["topology", "policy", "policy/sim", "devices"];

/// Where `unsafe` may be, for there the kernel or hardware is met: files, and directories of them.
pub(crate) const WITH_UNSAFE: [&str; 13] = [
    "resources/guest/ebizzy/mapping.rs",
    "resources/probe/guest/",
    "vmm/src/host/",
    "vmm/src/inspect/ring0.rs",
    "vmm/src/kvm/",
    "vmm/src/ledger/meter.rs",
    "vmm/src/ledger/thread_times.rs",
    "vmm/src/pause/clock.rs",
    "vmm/src/pause/park.rs",
    "vmm/src/pause/tracepoint.rs",
    "vmm/src/pause/yielding.rs",
    "vmm/src/vcpu/kick.rs",
    "vmm/src/vcpu/thread.rs",
];

/// Rooms that may know KVM.
const WITH_KVM: [&str; 2] = ["vmm", TESTS];

/// Crates that are KVM.
const KVM_CRATES: [&str; 2] = ["kvm-bindings", "kvm-ioctls"];

/// Crates that reach the operating system, the clock or chance, directly or by what they are for.
const OUTSIDE_CRATES: [&str; 16] = [
    "async-std",
    "chrono",
    "event-manager",
    "getrandom",
    "libbpf-rs",
    "libc",
    "mio",
    "nix",
    "rand",
    "rustix",
    "smol",
    "tempfile",
    "tokio",
    "vm-memory",
    "vmm-sys-util",
    "windows-sys",
];

/// The arrows from `member` to other `members` that are not allowed, one sentence each.
pub(crate) fn forbidden_arrows(member: &Member, members: &[Member]) -> Vec<String> {
    let other = |name: &str| members.iter().find(|other| other.package == name);
    let targets = member.dependencies.iter().filter_map(|name| other(name));
    targets
        .filter(|target| !is_allowed(&member.room, &target.room))
        .map(|target| format!("{} -> {}", member.room, target.room))
        .collect()
}

fn is_allowed(from: &str, to: &str) -> bool {
    if from == TESTS {
        return true;
    }
    if to.starts_with(RESOURCES) {
        return from == "vmm";
    }
    ARROWS.iter().any(|(room, allowed)| *room == from && allowed.contains(&to))
}

/// The crates of the outside that `member` must not depend on and does, for whatever purpose, one sentence each.
pub(crate) fn forbidden_crates(member: &Member) -> Vec<String> {
    let pure = WITHOUT_OUTSIDE.contains(&member.room.as_str());
    let blind = !WITH_KVM.contains(&member.room.as_str());
    let is_forbidden = |name: &str| pure && OUTSIDE_CRATES.contains(&name) || blind && KVM_CRATES.contains(&name);
    let offending = member.dependencies.iter().filter(|name| is_forbidden(name));
    offending.map(|name| format!("{} -> {name}", member.room)).collect()
}

#[test]
fn a_forbidden_arrow_is_seen() {
    let members = [
        Member::made_up("topology", "topology", &["policy"]),
        Member::made_up("policy", "policy", &["topology"]),
        Member::made_up("policy/sim", "sim", &["policy", "topology", "probe"]),
        Member::made_up("vmm", "vmm", &["sim", "probe", "vmm-tests"]),
        Member::made_up("resources/probe", "probe", &["topology"]),
        Member::made_up("tests", "vmm-tests", &["vmm", "probe"]),
        Member::made_up("attic", "attic", &["devices"]),
        Member::made_up("devices", "devices", &["serde"]),
    ];
    let found: Vec<_> = members.iter().flat_map(|member| forbidden_arrows(member, &members)).collect();
    let expected = [
        "topology -> policy",
        "policy/sim -> resources/probe",
        "vmm -> tests",
        "resources/probe -> topology",
        "attic -> devices",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_forbidden_crate_is_seen() {
    let seen = |room, crates: &[&str]| forbidden_crates(&Member::made_up(room, room, crates));
    assert_eq!(seen("devices", &["thiserror", "libc", "kvm-ioctls"]), ["devices -> libc", "devices -> kvm-ioctls"]);
    assert_eq!(seen("api", &["tokio", "kvm-bindings"]), ["api -> kvm-bindings"]);
    assert_eq!(seen("vmm", &["kvm-ioctls", "libc"]), [""; 0]);
}
