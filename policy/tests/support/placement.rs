// SPDX-License-Identifier: Apache-2.0
//! Hosts and guests for the placement tests.

#![allow(dead_code, reason = "each test file uses its own part")]

use policy::placement::{Guest, GuestCpu, GuestNode};
use topology::cpu_set::CpuSet;
use topology::host::{Capture, HostShape, HostTopology};
use topology::id::{HostCpu, NodeId};

/// One GiB in bytes.
pub(crate) const GIB: u64 = 1 << 30;

/// A regular host; counts are per one of the level above.
pub(crate) fn host(nodes: u32, llcs: u32, clusters: u32, cores: u32, threads: u32) -> HostTopology {
    HostShape { nodes, llcs, clusters, cores, threads, node_memory_bytes: 64 * GIB }.build().unwrap()
}

/// A host from a capture.
pub(crate) fn fixture(text: &str) -> HostTopology {
    HostTopology::from_capture(&Capture::parse(text).unwrap()).unwrap()
}

/// A guest of `vcpus` dealt evenly to `nodes`, every vCPU a core, `cluster` vCPUs a cluster.
pub(crate) fn guest(vcpus: u32, nodes: u32, cluster: u32) -> Guest {
    let node = |id| GuestNode { id: NodeId(id), memory_bytes: GIB, host_node: None };
    let cpu = |index: u32| {
        let node = index * nodes / vcpus;
        GuestCpu { node: node as usize, cluster: index / cluster + 1000 * node, core: index }
    };
    Guest { vcpus: (0..vcpus).map(cpu).collect(), nodes: (0..nodes).map(node).collect() }
}

/// A set from a list.
pub(crate) fn set(list: &str) -> CpuSet<HostCpu> {
    list.parse().unwrap()
}
