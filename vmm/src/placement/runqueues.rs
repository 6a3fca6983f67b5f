// SPDX-License-Identifier: Apache-2.0
//! What can be known of the length of each CPU's runqueue: its average from `/proc/schedstat`, and what it is at the moment
//! from an exact view of its own, which is loaded once somebody waits.
//!
//! Invariant: what is not known is left out, and [`Runqueues::grants`] says why.

use std::collections::BTreeMap;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::loads::cpu_waits;
use crate::host::runqueue::{self, BoundThreads, Loaded, OnDemand};
use crate::host::sysfs;
use crate::pause::effective::Grant;
use crate::vcpu::thread::own_tid;

/// Where the kernel says how long tasks have waited on each CPU.
const WAITS: &str = "/proc/schedstat";

/// The ways there are, and what has come of them.
#[derive(Debug, Default)]
pub(super) struct Runqueues {
    /// One of its own: that of pause handling is asked by vCPUs, and they must not wait for this one's many questions.
    exact: OnDemand,
    /// A thread on each CPU; looked for when the exact view is there.
    bound: Option<BoundThreads>,
    /// CPUs of the last look at the moment.
    seen: usize,
    /// Why there are no averages.
    no_average: Option<String>,
}

impl Runqueues {
    /// Somebody waits: better knowledge would be of use from the next look on.
    pub(super) fn want(&self) {
        self.exact.want();
    }

    /// CPUs came or went.
    pub(super) fn host_changed(&mut self) {
        self.bound = None;
    }

    /// Time that tasks have waited on each CPU since the host started, in ns.
    pub(super) fn waits(&mut self) -> BTreeMap<HostCpu, u64> {
        let text = sysfs::read_small(WAITS);
        self.no_average = text.as_ref().err().map(ToString::to_string);
        text.map(|text| cpu_waits(&text)).unwrap_or_default()
    }

    /// Runnable tasks of each CPU at this moment, without the vCPU threads and the calling one.
    pub(super) fn now(&mut self, usable: &CpuSet<HostCpu>, vcpus: impl Iterator<Item = i32>) -> BTreeMap<HostCpu, u32> {
        let Some(exact) = self.exact.get() else { return BTreeMap::new() };
        let bound = self.bound.get_or_insert_with(|| BoundThreads::find(usable));
        let own: Vec<i32> = vcpus.chain(std::iter::once(own_tid())).collect();
        // A look that fails tells nothing; the next may.
        let others = runqueue::others(exact, bound, &own).unwrap_or_default();
        self.seen = others.len();
        others
    }

    /// What is known in which way, and why not.
    pub(super) fn grants(&self) -> Vec<Grant> {
        let exact = match self.exact.state() {
            Loaded::Unasked => Grant::unasked("bpf", "no vCPU waited"),
            Loaded::Yes => {
                Grant::yes("bpf", format!("tasks of others at each look, on {} CPUs at the last", self.seen))
            }
            not => Grant::no("bpf", not.in_words(), None),
        };
        let average = match &self.no_average {
            None => Grant::yes("schedstat", "the average between two looks"),
            Some(why) => {
                Grant::no("schedstat", format!("{WAITS}: {why}"), Some("a kernel with CONFIG_SCHEDSTATS has it"))
            }
        };
        vec![exact, average]
    }
}
