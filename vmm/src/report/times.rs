// SPDX-License-Identifier: Apache-2.0
//! The parts of a report that say where time went and what KVM counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where a vCPU's time went while it was in the run loop, in nanoseconds; the terms add up to that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerReport {
    /// In guest code, sampled at the host's scheduler tick.
    pub guest: u64,
    /// Halted, or not started by the guest yet.
    pub halted: u64,
    /// Polling for an interrupt before a halt.
    pub polling: u64,
    /// Runnable, without a host CPU.
    pub waiting: u64,
    /// In the kernel's exit work: the remainder.
    pub kernel: u64,
    /// In the monitor's exit work, parking included.
    pub user: u64,
}

/// What KVM counted about the VM, and what its counters mean.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmStats {
    /// Every counter this kernel has.
    pub counters: Vec<KvmCounter>,
    /// The VM's own; one that is 0 is absent.
    pub vm: BTreeMap<String, CounterValue>,
    /// Why there are none; absent if there are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missing: Option<String>,
}

/// What one of KVM's counters means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmCounter {
    /// The kernel's name.
    pub name: String,
    /// `vm` or `vcpu`.
    pub scope: String,
    /// `cumulative`, `instant`, `peak`, `linear_histogram`, `log_histogram` or `unknown`.
    pub kind: String,
    /// Its unit: `count`, `ns`, `bytes`, `boolean`, `cycles`, or one with an exponent.
    pub unit: String,
}

/// A counter's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CounterValue {
    /// One number.
    One(u64),
    /// A histogram: one number a bucket, without the empty ones at the end.
    Buckets(Vec<u64>),
}
