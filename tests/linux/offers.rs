// SPDX-License-Identifier: Apache-2.0
//! What the guest is told of its host is what the flags chose, and the report says who decided.

use std::collections::BTreeMap;

use lab::packages::{Flavour, Series};
use libtest_mimic::{Completion, Failed, Trial};

use crate::guests::{self, Guest, Run};
use crate::{Set, none_of, trial};

const KERNEL: (Series, Flavour) = (Series::V6_12, Flavour::Cloud);

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("paravirtual_features_and_cpu_features_are_what_was_chosen", Set::Full, chosen)]
}

/// What Linux says of each feature that it uses.
const SIGNS: [(&str, &str); 4] = [
    ("kvmclock", "kvm-clock: Using msrs"),
    ("pv-ipi", "kvm-guest: setup PV IPIs"),
    ("pv-tlb-flush", "KVM setup pv remote TLB flush"),
    ("pv-unhalt", "PV spinlocks enabled"),
];

/// Reads `MSR_KVM_STEAL_TIME`, which faults where the feature is not offered and that is enforced.
const READ_STEAL_TIME: &str = "load msr\n\
    if dd if=/dev/cpu/0/msr of=/dev/null bs=8 count=1 iflag=skip_bytes skip=$((0x4b564d03)) 2>/dev/null\n\
    then echo guest: steal time is there; else echo guest: steal time is refused; fi";

/// Reads registers that no processor has and KVM does not know: each faults, and the guest goes on.
const READ_UNKNOWN: &str = "dd if=/dev/cpu/0/msr of=/dev/null bs=8 count=40 conv=noerror iflag=skip_bytes \
    skip=$((0x12345678)) 2>&1 | tail -n 1";
const UNKNOWN_READS: u64 = 40;

fn chosen() -> Result<Completion, Failed> {
    let guest = |name: &str, options: &str| Guest {
        options: options.to_owned(),
        script: format!(
            "grep -m 1 flags /proc/cpuinfo\n{}\n{READ_STEAL_TIME}\n{READ_UNKNOWN}",
            include_str!("../../resources/guest/load.sh")
        ),
        modules: vec!["msr"],
        ..Guest::new(name, KERNEL, "--cpus 2")
    };
    let guests = [
        guest("default", ""),
        guest("clock_alone", "--pv kvmclock --cpu-mask sse4_2,rdrand"),
        guest("some", "--pv kvmclock,steal-time,pv-tlb-flush --disable-exits hlt,pause --halt-poll 0"),
        guest("idle", "--disable-exits mwait,cstate"),
    ];
    guests::check(&guests, |runs| as_chosen(&runs))
}

fn as_chosen(runs: &BTreeMap<String, Run>) -> Result<(), Failed> {
    let mut problems = Vec::new();
    // What was chosen, and what of it Linux leaves alone: it flushes no TLB late where it has MWAIT.
    for (name, wanted, left) in [
        ("default", &["kvmclock", "pv-ipi", "pv-tlb-flush", "pv-unhalt"][..], ""),
        ("clock_alone", &["kvmclock"], ""),
        ("some", &["kvmclock", "pv-tlb-flush"], ""),
        ("idle", &["kvmclock", "pv-ipi", "pv-tlb-flush", "pv-unhalt"], "pv-tlb-flush"),
    ] {
        let run = &runs[name];
        run.ended_with(0)?;
        for (feature, sign) in SIGNS {
            let (used, chosen) = (run.console.contains(sign), wanted.contains(&feature));
            if used != (chosen && feature != left) || granted(run, &format!("pv.{feature}")) != Some(chosen) {
                problems.push(format!("{name}: {feature}: Linux {used}, chosen {chosen}, report {:?}", run.report));
            }
        }
    }
    for feature in ["sse4_2", "rdrand"] {
        let shown = |name: &str| runs[name].console.split_whitespace().any(|word| word == feature);
        if !shown("default") || shown("clock_alone") {
            problems.push(format!("{feature}: default {}, masked {}", shown("default"), shown("clock_alone")));
        }
    }
    for (name, there) in [("default", true), ("clock_alone", false), ("some", true), ("idle", true)] {
        let says = format!("guest: steal time is {}", if there { "there" } else { "refused" });
        if !runs[name].console.contains(&says) {
            problems.push(format!("{name}: it did not say {says:?}"));
        }
    }
    // A guest is shown MWAIT where, and only where, KVM lets it run without an exit.
    let shown = |name: &str| runs[name].console.split_whitespace().any(|word| word == "monitor");
    if granted(&runs["idle"], "no-exit.mwait") != Some(shown("idle")) || shown("default") {
        problems.push(format!("monitor: {}, by default {}: {}", shown("idle"), shown("default"), runs["idle"].report));
    }
    if granted(&runs["idle"], "no-exit.cstate").is_none() {
        problems.push("no-exit.cstate: not in the report".to_owned());
    }
    let counted = runs["default"].report["vcpus"][0]["exits"]["msr_read"].as_u64();
    if counted.is_none_or(|counted| counted < UNKNOWN_READS) {
        problems.push(format!("{UNKNOWN_READS} unknown registers read, {counted:?} counted"));
    }
    for name in ["no-exit.hlt", "no-exit.pause", "halt-poll", "pv-enforced"] {
        if granted(&runs["some"], name).is_none() {
            problems.push(format!("{name}: not in the report"));
        }
    }
    none_of("the guest was told something else", &problems)
}

/// What the report says of one thing.
fn granted(run: &Run, name: &str) -> Option<bool> {
    let offers = run.report["offers"].as_array()?;
    offers.iter().find(|offer| offer["name"] == name)?["granted"].as_bool()
}
