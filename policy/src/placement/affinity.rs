// SPDX-License-Identifier: Apache-2.0
//! From one CPU per vCPU to what each thread's affinity is set to.
//!
//! A vCPU that has its CPU alone is pinned to it. Where CPUs of a host node carry several vCPUs, all vCPUs there share
//! all CPUs the VM has in that node: pinning one to one is worse than a pool when there are more vCPUs than CPUs
//! (OpenNebula issue 3664).
//!
//! Invariant: a vCPU's affinity contains its CPU and never leaves its host node.

use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::HostCpu;

/// Affinity of every vCPU, given the CPU of each. A CPU that is not online is pinned to as it is.
#[must_use]
pub fn affinities(host: &HostTopology, cpus: &[HostCpu]) -> Vec<CpuSet<HostCpu>> {
    let mut own = vec![0u32; host.cpus().len()];
    for cpu in cpus.iter().filter_map(|cpu| host.index_of(*cpu)) {
        own[cpu] += 1;
    }
    let pool = |node: &topology::host::Node| {
        let here = |cpu: &HostCpu| host.index_of(*cpu).map_or(0, |cpu| own[cpu]);
        let taken: CpuSet<HostCpu> = node.cpus.iter().filter(|cpu| here(cpu) > 0).collect();
        let shared = taken.iter().any(|cpu| here(&cpu) > 1);
        shared.then_some(taken)
    };
    let pools: Vec<Option<CpuSet<HostCpu>>> = host.nodes().iter().map(pool).collect();
    let affinity = |&cpu: &HostCpu| {
        let pool = host.index_of(cpu).and_then(|index| pools[host.cpus()[index].node].clone());
        pool.unwrap_or_else(|| std::iter::once(cpu).collect())
    };
    cpus.iter().map(affinity).collect()
}

#[cfg(test)]
mod tests {
    use topology::host::HostShape;

    use super::*;

    #[test]
    fn only_nodes_with_shared_cpus_become_pools() {
        let shape = HostShape { nodes: 2, llcs: 1, clusters: 2, cores: 1, threads: 1, node_memory_bytes: 1 << 30 };
        let cpus = [0, 1, 1, 2].map(HostCpu);
        let lists: Vec<String> = affinities(&shape.build().unwrap(), &cpus).iter().map(CpuSet::to_string).collect();
        assert_eq!(lists, ["0-1", "0-1", "0-1", "2"]);
    }
}
