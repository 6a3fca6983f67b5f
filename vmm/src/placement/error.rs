// SPDX-License-Identifier: Apache-2.0
//! Why a machine cannot be placed as it was asked to, at start or while it runs.

use std::io;

use policy::placement::PlacementError;
use topology::cpu_set::CpuSet;
use topology::host::HostError;
use topology::id::{HostCpu, VcpuIndex};

use super::memory::MemoryPlaceError;

/// A machine cannot be placed as it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host.
    #[error("--placement {placement}: the host's topology cannot be used: {source}; --placement none needs none")]
    Host {
        /// As given.
        placement: String,
        /// What is wrong with it.
        source: HostError,
    },
    /// The plan.
    #[error("--placement {placement}: {source}")]
    Plan {
        /// As given.
        placement: String,
        /// What cannot be met.
        source: PlacementError,
    },
    /// CPUs that somebody keeps, or that this VM wants to keep.
    #[error(
        "--placement {placement}: CPUs {cpus} are claimed by other VMs (processes {pids}); wait for their end, name other \
         CPUs, or drop exclusive where it was asked for"
    )]
    Claimed {
        /// As given.
        placement: String,
        /// The CPUs.
        cpus: CpuSet<HostCpu>,
        /// Who claims them.
        pids: String,
    },
    /// Keeping CPUs needs a registry.
    #[error("--placement {placement}: {reason}; exclusive needs that")]
    NoRegistry {
        /// As given.
        placement: String,
        /// Why there is none.
        reason: String,
    },
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryPlaceError),
    /// A thread.
    #[error("--placement {placement}: vCPU {vcpu} cannot be put on the CPUs {cpus}: {source}; has the cpuset changed?")]
    Thread {
        /// As given.
        placement: String,
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The CPUs as a list.
        cpus: String,
        /// The kernel's reason.
        source: io::Error,
    },
}
