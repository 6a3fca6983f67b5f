// SPDX-License-Identifier: Apache-2.0
//! Regular hosts of any size, described as sysfs would describe them.
//!
//! For the simulator and for measurements of cost: a host of 1024 CPUs that goes through the same parser as a real one.
//!
//! Invariant: a shape's capture always builds, and every level has as many groups as the shape says.

use super::{Capture, HostError, HostTopology, MAX_CPUS, MAX_NODES};
use crate::cpu_set::CpuSet;
use crate::id::HostCpu;

/// How many of each level are in one of the level above. All at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostShape {
    /// NUMA nodes, each a package of its own, 20 apart.
    pub nodes: u32,
    /// Last-level caches of a node.
    pub llcs: u32,
    /// Clusters of a cache.
    pub clusters: u32,
    /// Cores of a cluster.
    pub cores: u32,
    /// Threads of a core. CPU numbers are given as x86 firmware does: all first threads, then all second ones.
    pub threads: u32,
    /// Memory of a node in bytes.
    pub node_memory_bytes: u64,
}

impl HostShape {
    /// CPUs of the host.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        u64::from(self.cores()) * u64::from(self.threads)
    }

    /// The sysfs text of such a host.
    ///
    /// # Errors
    /// [`HostError::CaptureTooLarge`] if it has more than [`MAX_CPUS`] CPUs or [`MAX_NODES`] nodes, or none at all.
    pub fn capture(&self) -> Result<Capture, HostError> {
        if self.cpus() == 0 || self.cpus() > u64::from(MAX_CPUS) {
            return Err(HostError::CaptureTooLarge { what: "CPUs, or none", limit: MAX_CPUS as usize });
        }
        if self.nodes as usize > MAX_NODES {
            return Err(HostError::CaptureTooLarge { what: "nodes", limit: MAX_NODES });
        }
        let mut capture = Capture::default();
        let all = self.span(0, self.cores()).to_string();
        capture.insert("devices/system/cpu/online", &all)?;
        capture.insert(super::path::AFFINITY, &all)?;
        for core in 0..self.cores() {
            self.core(&mut capture, core)?;
        }
        let per_node = self.cores() / self.nodes;
        for node in 0..self.nodes {
            let directory = format!("devices/system/node/node{node}");
            let distances: Vec<&str> = (0..self.nodes).map(|other| if other == node { "10" } else { "20" }).collect();
            let memory =
                format!("Node {node} MemTotal: {0} kB\nNode {node} MemFree: {0} kB", self.node_memory_bytes / 1024);
            capture.insert(&format!("{directory}/cpulist"), &self.span(node * per_node, per_node).to_string())?;
            capture.insert(&format!("{directory}/distance"), &distances.join(" "))?;
            capture.insert(&format!("{directory}/meminfo"), &memory)?;
        }
        Ok(capture)
    }

    /// The host.
    ///
    /// # Errors
    /// As [`Self::capture`].
    pub fn build(&self) -> Result<HostTopology, HostError> {
        HostTopology::from_capture(&self.capture()?)
    }

    fn core(&self, capture: &mut Capture, core: u32) -> Result<(), HostError> {
        let group = |cores: u32| self.span(core / cores * cores, cores).to_string();
        let (per_cluster, per_llc) = (self.cores, self.cores * self.clusters);
        let package = group(per_llc * self.llcs);
        for cpu in self.span(core, 1).iter() {
            let directory = format!("devices/system/cpu/cpu{cpu}");
            capture.insert(&format!("{directory}/topology/core_cpus_list"), &group(1))?;
            capture.insert(&format!("{directory}/topology/cluster_cpus_list"), &group(per_cluster))?;
            capture.insert(&format!("{directory}/topology/die_cpus_list"), &package)?;
            capture.insert(&format!("{directory}/topology/package_cpus_list"), &package)?;
            capture.insert(&format!("{directory}/cache/index3/level"), "3")?;
            capture.insert(&format!("{directory}/cache/index3/type"), "Unified")?;
            capture.insert(&format!("{directory}/cache/index3/shared_cpu_list"), &group(per_llc))?;
        }
        Ok(())
    }

    /// Saturates: no shape that is accepted comes near the limit.
    fn cores(&self) -> u32 {
        [self.llcs, self.clusters, self.cores].iter().fold(self.nodes, |product, n| product.saturating_mul(*n))
    }

    /// The CPUs of `count` cores from `first` on.
    fn span(&self, first: u32, count: u32) -> CpuSet<HostCpu> {
        let cores = self.cores();
        (0..self.threads)
            .flat_map(|thread| (first..first + count).map(move |core| HostCpu(thread * cores + core)))
            .collect()
    }
}
