// SPDX-License-Identifier: Apache-2.0
//! A host's levels as lists of dense indices, made once per host so that a pass does no look-ups.
//!
//! Invariant: made from one `HostTopology` and used with no other.

use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::HostCpu;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) cores: Vec<Vec<usize>>,
    /// Whether some thread of a core is usable.
    pub(super) core_usable: Vec<bool>,
    pub(super) clusters: Vec<Vec<usize>>,
    pub(super) llcs: Vec<Vec<usize>>,
    pub(super) nodes: Vec<Vec<usize>>,
    /// For every node, the others from near to far.
    pub(super) nearest: Vec<Vec<usize>>,
    pub(super) usable: Vec<bool>,
}

impl Groups {
    pub(super) fn new(host: &HostTopology) -> Self {
        let indices = |cpus: &CpuSet<HostCpu>| cpus.iter().filter_map(|cpu| host.index_of(cpu)).collect::<Vec<_>>();
        let mut usable = vec![false; host.cpus().len()];
        indices(host.usable()).into_iter().for_each(|cpu| usable[cpu] = true);
        let nearest = |node: usize| {
            let mut others: Vec<usize> = (0..host.nodes().len()).filter(|&other| other != node).collect();
            others.sort_by_key(|&other| host.distance(node, other));
            others
        };
        let cores: Vec<Vec<usize>> = host.cores().iter().map(|group| indices(&group.cpus)).collect();
        Self {
            core_usable: cores.iter().map(|core| core.iter().any(|&cpu| usable[cpu])).collect(),
            cores,
            clusters: host.clusters().iter().map(|group| indices(&group.cpus)).collect(),
            llcs: host.llcs().iter().map(|group| indices(&group.cpus)).collect(),
            nodes: host.nodes().iter().map(|node| indices(&node.cpus)).collect(),
            nearest: (0..host.nodes().len()).map(nearest).collect(),
            usable,
        }
    }
}
