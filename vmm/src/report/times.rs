// SPDX-License-Identifier: Apache-2.0
//! The parts of a report that say where time went and what KVM counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where a vCPU's time went while it was in the run loop, in nanoseconds: the control API and the report tell it alike.
pub use api::wire::Ledger as LedgerReport;

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
