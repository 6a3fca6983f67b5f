// SPDX-License-Identifier: Apache-2.0
//! What a rebalancing pass sees: loads of vCPUs and CPUs over the last window, and where memory is.
//!
//! Invariant: plain facts of one moment. A vCPU or CPU that is missing from its slice counts as idle.

use serde::{Deserialize, Serialize};
use topology::id::{HostCpu, VcpuIndex};

use crate::time::Nanos;

/// Loads are in 1024ths of a CPU.
pub const FULL: u32 = 1024;

/// One vCPU over the last window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuLoad {
    /// The CPU it was placed on, also if it may roam in a pool ([`super::affinities`]).
    pub cpu: HostCpu,
    /// Time it ran, in 1024ths of the window (`/proc/self/task/TID/schedstat`, first field).
    pub running: u32,
    /// Time it was runnable and waited, in 1024ths of the window (second field).
    pub waiting: u32,
}

impl VcpuLoad {
    /// What it would use if it had a CPU alone, in 1024ths, at most [`FULL`].
    #[must_use]
    pub fn demand(&self) -> u32 {
        self.running.saturating_add(self.waiting).min(FULL)
    }
}

/// One host CPU over the last window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// Time it was not idle, in 1024ths of the window (`/proc/stat`).
    pub utilisation: u32,
    /// The same over several seconds.
    pub average: u32,
    /// How many others share it.
    pub runqueue: Runqueue,
    /// vCPUs of other VMs that claimed it.
    pub claims: u32,
    /// Another VM claimed it exclusively: it is not used, and left if it was.
    pub exclusive: bool,
    /// Mean length of its idle periods in ns; `u64::MAX` if not known.
    pub mean_idle_ns: u64,
}

/// The length of a CPU's runqueue without the vCPUs of this VM: tasks of others that run there or wait to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runqueue {
    /// At this moment; `None` if not known.
    pub now: Option<u32>,
    /// On average over the window, in 1024ths of a task; `None` if not known.
    pub mean: Option<u32>,
}

impl Runqueue {
    /// What others would use if they had the CPU alone, in 1024ths, where they used `used` of it: the mean length or, on a
    /// CPU without rest in the window, [`FULL`] for each task that is there now. Where the length is not known, what they
    /// used, which is at most one CPU however many they are.
    pub(super) fn demand(self, used: u32, utilisation: u32) -> u32 {
        let rested = utilisation < FULL - FULL / 8;
        let now = self.now.filter(|_| !rested).map(|tasks| tasks.saturating_mul(FULL));
        self.mean.or(now).map_or(used, |tasks| tasks.max(used))
    }
}

/// Two vCPUs that wait for each other, for instance because one keeps yielding to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The one that moves.
    pub mover: VcpuIndex,
    /// The one it should be near.
    pub anchor: VcpuIndex,
    /// How.
    pub step: Step,
}

/// What is done with a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The mover goes to an idle CPU that is nearer to the anchor.
    Nearer,
    /// The same or, where no CPU is left empty, it goes to the anchor's own CPU in exchange for another vCPU there.
    OneCpu,
    /// The mover goes back to where it was, because being near did not help.
    Back {
        /// Where it was.
        to: HostCpu,
        /// Who took its place; goes back too.
        other: Option<VcpuIndex>,
    },
}

/// What a pass is given.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Now.
    pub now: Nanos,
    /// vCPUs by index.
    pub vcpus: &'a [VcpuLoad],
    /// CPUs in the order of `HostTopology::cpus`.
    pub cpus: &'a [CpuLoad],
    /// For every guest node, bytes of its memory on every host node, in the order of `HostTopology::nodes`. Empty if
    /// not known: rule `numa` then rests.
    pub memory: &'a [Vec<u64>],
    /// Pairs to be brought together or taken apart, as [`super::Pairing`] asks for them. Most important first.
    pub pairs: &'a [Pair],
}
