// SPDX-License-Identifier: Apache-2.0
//! Where threads stand with the host's scheduler: the facts behind the decision whether a yield can help anybody.
//!
//! There are two ways to tell: [`Exact`] reads the kernel's own numbers through a BPF program and needs privileges;
//! [`OwnThreads`] reads `/proc/self/task`, needs none, and sees less. Which of them a machine gets, and when, is
//! `pause`'s business. Invariant: unknown is `None`, never 0 and never "idle".

mod exact;
mod lengths;
mod on_demand;
mod own_threads;
pub(crate) mod proc_text;

use topology::id::HostCpu;

pub use exact::{Exact, ExactError};
pub use lengths::{BoundThreads, others};
pub use on_demand::{Loaded, OnDemand};
pub use own_threads::OwnThreads;

/// One thread at one moment, as far as it can be seen. All is unknown of a thread that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Runnable tasks on its CPU, itself included if it is one: the kernel's `nr_running`.
    pub runqueue: Option<u32>,
    /// Whether it is on a CPU at this moment.
    pub on_cpu: Option<bool>,
    /// Whether it is runnable: on a CPU or waiting for one.
    pub runnable: Option<bool>,
    /// The CPU it is on, or was on last.
    pub cpu: Option<HostCpu>,
}
