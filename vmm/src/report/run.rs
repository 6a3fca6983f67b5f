// SPDX-License-Identifier: Apache-2.0
//! The types behind `--report FILE`, one struct for each JSON object.
//!
//! A field that a run may not have (a guest that never reported what it saw, an AP that never came up) is an
//! `Option`, and its key is absent from the document when it is `None`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::times::{CounterValue, KvmStats, LedgerReport};
use super::{DevicesReport, ExitStatus, PlacementReport, VcpuPlacementReport};
use crate::config::HugePages;
use crate::pause::effective::{Effective, Grant};

/// Value of [`Report::schema`]: raised only if a key changes its meaning, never when one is added.
pub const SCHEMA: u32 = 1;

/// One run, from the first byte of the command line to the exit status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the document, [`SCHEMA`].
    pub schema: u32,
    /// How the run ended.
    pub exit: Exit,
    /// What it ran on.
    pub host: Host,
    /// What was asked for, and what the guest saw of it.
    pub guest: Guest,
    /// How long the start took.
    pub start: Start,
    /// What the monitor itself cost.
    pub monitor: Monitor,
    /// One entry a vCPU, in the order of the index.
    pub vcpus: Vec<VcpuReport>,
    /// What KVM counted about the VM, and what its counters mean.
    #[serde(default)]
    pub kvm_stats: KvmStats,
    /// Where it was on the host.
    pub placement: PlacementReport,
    /// What was asked for about pause loops, and what the host granted.
    pub pause: Effective,
    /// What the guest was told of its host and what KVM was allowed to do: asked for, granted, and who decided.
    pub offers: Vec<Grant>,
    /// What the devices counted; absent in reports of older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub devices: Option<DevicesReport>,
    /// The probe guest's result; absent for other guests and when the probe printed none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<Workload>,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit status of the process, [`ExitStatus::code`].
    pub status: u8,
    /// The reason in words: [`ExitStatus::reason`], or the error message of a failed run.
    pub reason: String,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { status: status.code(), reason: status.reason().to_owned() }
    }
}

/// What virtualises the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvmKind {
    /// Intel VT-x: `/proc/cpuinfo` has the flag `vmx`.
    Vmx,
    /// AMD-V: `/proc/cpuinfo` has the flag `svm`.
    Svm,
    /// `/dev/kvm` works though the CPU offers neither.
    Software,
}

impl fmt::Display for KvmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vmx => "vmx",
            Self::Svm => "svm",
            Self::Software => "software",
        })
    }
}

/// What the run ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// What virtualises the guest.
    pub kvm: KvmKind,
    /// Release of the host kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Number of host CPUs online.
    pub cpus: u32,
}

/// What was asked for, and what the guest saw of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Number of vCPUs.
    pub cpus: u32,
    /// Number of NUMA nodes, at least 1.
    pub nodes: u32,
    /// Guest memory over all nodes, in bytes.
    pub memory_bytes: u64,
    /// What the guest reported of itself; absent unless it is the probe guest and it got that far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen: Option<Seen>,
    /// What its memory was made of on the host at the end of the run; absent if `/proc` is not mounted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pages: Option<GuestPagesReport>,
}

/// What guest memory was made of on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPagesReport {
    /// As `--hugepages` spells it; absent if nothing was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asked: Option<HugePages>,
    /// Size of a page of the mappings in bytes; transparent huge pages do not count.
    pub page_bytes: u64,
    /// Bytes that were in memory.
    pub resident_bytes: u64,
    /// Of these, bytes in huge pages, of a pool or transparent.
    pub huge_bytes: u64,
}

/// What the guest found by itself, by CPUID and the ACPI tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// vCPUs that came up.
    pub cpus: u32,
    /// Distinct NUMA nodes the guest found.
    pub nodes: u32,
}

/// How long the start took, from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Until the first KVM_RUN of vCPU 0, in microseconds; absent if it never came to that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_instruction_us: Option<u64>,
    /// Until the last AP reported itself up, in microseconds; absent if not all did, or nothing reported them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_ap_us: Option<u64>,
}

/// What the monitor itself cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitor {
    /// Proportional set size at the end of the run without the guest's memory, in bytes.
    pub pss_bytes: u64,
}

/// One vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuReport {
    /// Index of the vCPU.
    pub index: u32,
    /// Its (x2)APIC id.
    pub apic_id: u32,
    /// Id of its thread on the host.
    pub tid: i32,
    /// Exits to the monitor by kind; a kind that never happened is absent.
    pub exits: BTreeMap<String, u64>,
    /// How long it was in the run loop, in nanoseconds: what its ledger divides up.
    #[serde(default)]
    pub run_loop_ns: u64,
    /// Where its time went, in nanoseconds.
    #[serde(default)]
    pub ledger_ns: LedgerReport,
    /// KVM's own counters of it under the kernel's names; one that is 0 is absent.
    #[serde(default)]
    pub kvm_stats: BTreeMap<String, CounterValue>,
    /// Where its thread was; absent where the kernel decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub placement: Option<VcpuPlacementReport>,
    /// What was done about its pause loops.
    pub pause: PauseReport,
}

/// What was done about one vCPU's pause loops: the control API and the report tell it alike.
pub use api::wire::PauseCounters as PauseReport;
/// Actions and what came of them; likewise.
pub use api::wire::Yields as YieldReport;

/// What the probe guest's workload brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// First word of `--probe`.
    pub name: String,
    /// How long it ran by the guest's clock, in seconds.
    pub seconds: f64,
    /// What it counted, over all vCPUs.
    pub operations: u64,
    /// `operations` divided by `seconds`.
    pub operations_per_s: f64,
    /// Actions about pause loops for each operation; absent if there was no operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub yields_per_handover: Option<f64>,
    /// Pause events that the guest reported by the port.
    #[serde(default)]
    pub port_writes: u64,
    /// Time that all vCPUs spent spinning, in seconds; absent where the workload does not time its spinning.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spin_seconds: Option<f64>,
    /// Median wait for the lock or the answer, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p50_ns: Option<u64>,
    /// 99th percentile of the wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p99_ns: Option<u64>,
    /// 99.9th percentile of the wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p999_ns: Option<u64>,
    /// Jain's index over the vCPUs' operations: 1 is fair, 1/n is one vCPU having it all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jain: Option<f64>,
}
