// SPDX-License-Identifier: Apache-2.0
//! Why no placement could be made: one variant per kind of impossible wish.

use thiserror::Error;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};

/// Why a wish about placement cannot be met on this host.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlacementError {
    /// Pinned CPUs that are not online or do not exist.
    #[error("cannot pin to CPUs {cpus}: offline or absent; online and allowed are {usable}")]
    PinAbsent {
        /// These CPUs.
        cpus: CpuSet<HostCpu>,
        /// CPUs that could be used, as a list.
        usable: String,
    },
    /// Pinned CPUs that are online but outside the process's cpuset or affinity.
    #[error("cannot pin to CPUs {cpus}: outside this process's cpuset or affinity, {usable}; widen the cpuset first")]
    PinForbidden {
        /// These CPUs.
        cpus: CpuSet<HostCpu>,
        /// CPUs that could be used, as a list.
        usable: String,
    },
    /// `pin` without any CPU.
    #[error("placement pin needs at least one CPU, as in pin=0 or pin=[0,1]")]
    PinEmpty,
    /// A guest node wishes for a host node that does not exist.
    #[error("guest node {guest} wants host node {host}, which does not exist; there are nodes {existing}")]
    NoSuchNode {
        /// The guest node.
        guest: NodeId,
        /// The host node.
        host: HostNode,
        /// Host nodes, as a list.
        existing: String,
    },
    /// A guest node must have its memory on a host node that has too little.
    #[error(
        "guest node {guest} needs {wanted_bytes} bytes on host node {host}, which has {free_bytes} free; bind elsewhere or less"
    )]
    NodeFull {
        /// The guest node.
        guest: NodeId,
        /// The host node.
        host: HostNode,
        /// What it needs in bytes, with what other nodes of the guest need there.
        wanted_bytes: u64,
        /// What is free in bytes.
        free_bytes: u64,
    },
    /// Other VMs claimed every usable CPU exclusively.
    #[error("every CPU of {usable} is claimed exclusively by other VMs: stop one, or widen this process's cpuset")]
    AllClaimed {
        /// CPUs that could be used but for the claims, as a list.
        usable: String,
    },
    /// A vCPU belongs to a guest node that is not described.
    #[error("vCPU {vcpu} belongs to the {node}. of {nodes} guest nodes, counted from 0: describe that node")]
    NoSuchGuestNode {
        /// The vCPU.
        vcpu: VcpuIndex,
        /// The index it has.
        node: usize,
        /// Guest nodes described.
        nodes: usize,
    },
    /// The guest has no vCPU.
    #[error("there is no vCPU to place")]
    NoVcpus,
}
