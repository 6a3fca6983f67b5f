// SPDX-License-Identifier: Apache-2.0
//! What a cell brought: its guests' results as they were measured, or why there are none.
//!
//! Invariant: nothing here is computed from several runs; these are the raw samples that a run directory keeps. Keys are
//! only added to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schedule::Cell;

/// One run of one cell, as a run directory keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Which cell.
    pub cell: Cell,
    /// Its name, for people.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took in all, in milliseconds.
    pub took_ms: u64,
    /// Load average of the host over the last minute, just before.
    pub load_before: Option<f64>,
    /// Share of the time of the host CPUs that others took while it ran, from 0 to 1, in steps of clock ticks (10 ms).
    #[serde(default)]
    pub others_share: Option<f64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A sample a guest.
    Measured(Vec<GuestSample>),
    /// No number, and why.
    Failed(String),
}

impl Outcome {
    /// The samples, if there are any.
    #[must_use]
    pub fn samples(&self) -> Option<&[GuestSample]> {
        match self {
            Self::Measured(samples) => Some(samples),
            Self::Failed(_) => None,
        }
    }
}

/// What one guest did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestSample {
    /// What its workload counted.
    pub operations: u64,
    /// How long it worked by its own clock, in seconds.
    pub seconds: f64,
    /// Operations a second.
    pub operations_per_s: f64,
    /// Time its vCPUs spent spinning, in seconds, where the workload times it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spin_seconds: Option<f64>,
    /// Median wait for the lock or the answer, in nanoseconds, where the workload times it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p50_ns: Option<u64>,
    /// 99th percentile of the wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p99_ns: Option<u64>,
    /// 99.9th percentile of the wait.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wait_p999_ns: Option<u64>,
    /// Jain's index over its vCPUs' operations.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jain: Option<f64>,
    /// What a Linux guest itself saw of its CPUs' time and of waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seen_inside: Option<SeenInside>,
    /// How much later than the first guest it told its result, in microseconds: how far the windows differ.
    pub ended_late_us: u64,
    /// Its vCPUs, in the order of the index.
    pub vcpus: Vec<VcpuSample>,
}

/// What the kernel of a Linux guest counted over all its CPUs while the tool ran, and what the tool timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenInside {
    /// In programs, in milliseconds.
    pub user_ms: u64,
    /// In the kernel.
    pub system_ms: u64,
    /// Idle.
    pub idle_ms: u64,
    /// Stolen by the host, as KVM's steal clock tells.
    pub steal_ms: u64,
    /// The longest wait that the tool saw, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_us: Option<u64>,
    /// The 95th percentile, where the tool reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p95_us: Option<u64>,
}

/// What one vCPU's time and pause loops came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuSample {
    /// Where its time went.
    pub ledger_ns: Ledger,
    /// Pause events.
    pub events: u64,
    /// PAUSE exits that the kernel counted.
    pub pause_exits: u64,
    /// Actions about them.
    pub attempted: u64,
    /// Of these, the CPU changed hands.
    pub boosted: u64,
    /// It did not.
    pub not_boosted: u64,
    /// Nobody wanted the CPU.
    pub nobody_waiting: u64,
    /// Bail-outs by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub bailed: BTreeMap<String, u64>,
    /// Parks.
    pub parks: u64,
    /// CPU time given to others, in nanoseconds.
    pub donated_ns: u64,
    /// CPU time got from others, in nanoseconds.
    pub received_ns: u64,
}

/// Where time went, in nanoseconds, from the start of the vCPU's thread to its end: boot and shutdown included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// In guest code.
    pub guest: u64,
    /// Halted, or not started by the guest yet.
    pub halted: u64,
    /// Polling for an interrupt before a halt.
    pub polling: u64,
    /// Runnable, without a host CPU: what a guest sees as steal.
    pub waiting: u64,
    /// In the kernel's exit work.
    pub kernel: u64,
    /// In the monitor's exit work, parking included.
    pub user: u64,
}

impl Ledger {
    /// Its terms with their names, in the order in which they are drawn.
    #[must_use]
    pub const fn terms(&self) -> [(&'static str, u64); 6] {
        [
            ("guest", self.guest),
            ("waiting", self.waiting),
            ("halted", self.halted),
            ("polling", self.polling),
            ("kernel", self.kernel),
            ("user", self.user),
        ]
    }
}
