// SPDX-License-Identifier: Apache-2.0
//! What a decision is made on and what was made of it: `start` fills it in, `live` keeps it up to date.

use policy::placement::{Claim, Guest, Plan};
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::HostCpu;

use crate::host::affinity;
use crate::host::registry::OwnClaim;

/// The host and the guest, as a decision sees them.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) host: HostTopology,
    pub(super) guest: Guest,
    /// CPUs the process was allowed at start.
    pub(super) process: CpuSet<HostCpu>,
    pub(super) plan: Plan,
    pub(super) claims: Vec<Claim>,
    pub(super) own: Option<OwnClaim>,
    /// CPUs of each vCPU thread, as applied.
    pub(super) cpus: Vec<CpuSet<HostCpu>>,
    /// CPUs of the other threads, as applied.
    pub(super) others: Option<CpuSet<HostCpu>>,
}

impl Site {
    /// A site where the kernel decides.
    pub(super) fn undecided(host: HostTopology, guest: Guest) -> Self {
        let process = affinity::of_this_thread().unwrap_or_default();
        let plan = Plan { places: Vec::new(), homes: Vec::new(), notes: Vec::new() };
        Self { host, guest, process, plan, claims: Vec::new(), own: None, cpus: Vec::new(), others: None }
    }
}
