// SPDX-License-Identifier: Apache-2.0
//! The host as far as results depend on it, read from `/proc` and `/sys`.
//!
//! Invariant: what cannot be read is absent, and never a made-up value.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

/// What a result can depend on. Two runs are compared with a warning where these differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Model of the CPUs.
    pub cpu_model: Option<String>,
    /// CPUs online, as a list.
    pub cpus_online: Option<String>,
    /// What virtualises: `vmx`, `svm`, `software`.
    pub kvm: String,
    /// Parameters of KVM's modules that bear on pause loops and halts; those this host has.
    pub kvm_parameters: BTreeMap<String, String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether SMT is on: `on`, `off`, `notsupported` and so on.
    pub smt: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
}

/// Parameters of modules, by the files below `/sys/module`.
const KVM_PARAMETERS: [&str; 9] = [
    "kvm_intel/parameters/ple_gap",
    "kvm_intel/parameters/ple_window",
    "kvm_intel/parameters/ple_window_grow",
    "kvm_intel/parameters/ple_window_max",
    "kvm_amd/parameters/pause_filter_count",
    "kvm_amd/parameters/pause_filter_thresh",
    "kvm_amd/parameters/pause_filter_count_grow",
    "kvm_amd/parameters/pause_filter_count_max",
    "kvm/parameters/halt_poll_ns",
];

impl HostState {
    /// This host; `kvm` is what virtualises, which is not asked here.
    #[must_use]
    pub fn of_this_host(kvm: &str) -> Self {
        let parameter = |name: &&str| read(&format!("/sys/module/{name}")).map(|value| ((*name).to_owned(), value));
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu_model: read("/proc/cpuinfo").and_then(|text| field(&text, "model name")),
            cpus_online: read("/sys/devices/system/cpu/online"),
            kvm: kvm.to_owned(),
            kvm_parameters: KVM_PARAMETERS.iter().filter_map(parameter).collect(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            smt: read("/sys/devices/system/cpu/smt/control"),
            memory_mib: read("/proc/meminfo").and_then(|text| mib(&text, "MemTotal")),
        }
    }

    /// What differs from another host, one sentence each.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let mut rows = vec![
            ("kernel", shown(&self.kernel), shown(&other.kernel)),
            ("CPU model", shown(&self.cpu_model), shown(&other.cpu_model)),
            ("CPUs online", shown(&self.cpus_online), shown(&other.cpus_online)),
            ("KVM", self.kvm.clone(), other.kvm.clone()),
            ("governor", shown(&self.governor), shown(&other.governor)),
            ("SMT", shown(&self.smt), shown(&other.smt)),
        ];
        let memory = |host: &Self| shown(&host.memory_mib.map(|mib| format!("{mib} MiB")));
        rows.push(("memory", memory(self), memory(other)));
        for name in KVM_PARAMETERS {
            let of = |host: &Self| shown(&host.kvm_parameters.get(name).cloned());
            rows.push((name, of(self), of(other)));
        }
        let differing = rows.into_iter().filter(|(_, a, b)| a != b);
        differing.map(|(what, a, b)| format!("{what}: {a} and {b}")).collect()
    }
}

/// Load average over the last minute.
#[must_use]
pub fn load() -> Option<f64> {
    read("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

/// A size in `/proc/meminfo`, in MiB.
pub(crate) fn mib(meminfo: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, name)?.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_found() {
        assert_eq!(
            field("a\t: 1\nmodel name\t: Some CPU @ 2 GHz\n", "model name").as_deref(),
            Some("Some CPU @ 2 GHz")
        );
        assert_eq!(mib("MemTotal:       24000 kB\nMemAvailable:   2048 kB\n", "MemAvailable"), Some(2));
        assert_eq!(mib("MemTotal: x kB\n", "MemTotal"), None);
    }

    #[test]
    fn hosts_differ_by_what_a_result_depends_on() {
        let one = HostState { kvm: "vmx".to_owned(), kernel: Some("6.12".to_owned()), ..HostState::default() };
        assert!(one.differences(&one.clone()).is_empty());
        let mut other = HostState { kvm: "svm".to_owned(), ..one.clone() };
        other.kvm_parameters.insert("kvm/parameters/halt_poll_ns".to_owned(), "0".to_owned());
        assert_eq!(one.differences(&other), ["KVM: vmx and svm", "kvm/parameters/halt_poll_ns: unknown and 0"]);
    }
}
