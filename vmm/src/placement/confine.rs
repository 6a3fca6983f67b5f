// SPDX-License-Identifier: Apache-2.0
//! From places to the CPUs each thread may use. Pure.
//!
//! A vCPU that has its CPU alone is pinned to it; vCPUs that share CPUs with each other share all that the VM has in the
//! node (`policy::placement::affinities`), but for a pair that is together on one CPU and stays there. A vCPU whose CPU another VM claims too may use every CPU of the node that is
//! not claimed exclusively: between VMs that are too many for the host the kernel shares most fairly when it may choose.

use policy::placement::{Claim, affinities};
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostCpu, VcpuIndex};

/// The CPUs of each vCPU thread, given its place; those of `together` stay there.
#[must_use]
pub fn vcpus(
    host: &HostTopology,
    places: &[HostCpu],
    claims: &[Claim],
    together: &[VcpuIndex],
) -> Vec<CpuSet<HostCpu>> {
    let taken = union(claims.iter().map(|claim| &claim.cpus));
    let kept = union(claims.iter().filter(|claim| claim.exclusive).map(|claim| &claim.cpus));
    let mut own = affinities(host, places);
    for index in together.iter().map(|vcpu| vcpu.index()) {
        if let Some((own, place)) = own.get_mut(index).zip(places.get(index)) {
            *own = std::iter::once(*place).collect();
        }
    }
    let one = |(place, own): (&HostCpu, CpuSet<HostCpu>)| {
        let node = host.index_of(*place).map(|index| &host.nodes()[host.cpus()[index].node]);
        match node.filter(|_| taken.contains(*place)) {
            Some(node) => node.cpus.intersection(host.usable()).difference(&kept).union(&own),
            None => own,
        }
    };
    places.iter().zip(own).map(one).collect()
}

/// Where threads that are no vCPUs go: usable CPUs without a vCPU of this VM, unclaimed ones if there are any, and of
/// these the ones in the nodes that have vCPUs. `None` where there is no room: then they stay where they are.
#[must_use]
pub fn others(host: &HostTopology, places: &[HostCpu], claims: &[Claim]) -> Option<CpuSet<HostCpu>> {
    let taken = union(claims.iter().map(|claim| &claim.cpus));
    let free = host.usable().difference(&places.iter().copied().collect());
    let of_node = |place: &HostCpu| host.index_of(*place).map(|index| &host.nodes()[host.cpus()[index].node].cpus);
    let near = union(places.iter().filter_map(of_node));
    let choices = [free.difference(&taken).intersection(&near), free.difference(&taken), free];
    choices.into_iter().find(|cpus| !cpus.is_empty())
}

/// All members of several sets.
pub(super) fn union<'a>(sets: impl Iterator<Item = &'a CpuSet<HostCpu>>) -> CpuSet<HostCpu> {
    sets.flat_map(CpuSet::iter).collect()
}

#[cfg(test)]
mod tests {
    use topology::host::HostShape;

    use super::*;

    fn host() -> HostTopology {
        HostShape { nodes: 2, llcs: 1, clusters: 2, cores: 2, threads: 1, node_memory_bytes: 1 << 30 }.build().unwrap()
    }

    fn lists(places: &[u32], claims: &[Claim]) -> Vec<String> {
        let places: Vec<HostCpu> = places.iter().copied().map(HostCpu).collect();
        vcpus(&host(), &places, claims, &[]).iter().map(CpuSet::to_string).collect()
    }

    fn claim(cpus: &str, exclusive: bool) -> Claim {
        Claim { cpus: cpus.parse().unwrap(), exclusive }
    }

    #[test]
    fn a_vcpu_alone_is_pinned_and_one_on_a_claimed_cpu_may_roam() {
        assert_eq!(lists(&[0, 5], &[]), ["0", "5"]);
        assert_eq!(lists(&[0, 5], &[claim("5", false)]), ["0", "4-7"]);
        assert_eq!(lists(&[0, 5], &[claim("5", false), claim("7", true)]), ["0", "4-6"]);
    }

    #[test]
    fn a_pair_that_is_together_stays_on_its_cpu_and_the_others_roam() {
        let places = [0, 0, 1, 1].map(HostCpu);
        let cpus = vcpus(&host(), &places, &[], &[VcpuIndex(2), VcpuIndex(3)]);
        assert_eq!(cpus.iter().map(CpuSet::to_string).collect::<Vec<_>>(), ["0-1", "0-1", "1", "1"]);
    }

    #[test]
    fn other_threads_keep_off_vcpus_where_there_is_room() {
        let cpus = |places: &[u32], claims: &[Claim]| {
            let places: Vec<HostCpu> = places.iter().copied().map(HostCpu).collect();
            others(&host(), &places, claims).map(|cpus| cpus.to_string())
        };
        assert_eq!(cpus(&[0, 1], &[]).as_deref(), Some("2-3"));
        assert_eq!(cpus(&[0, 1], &[claim("2-3", false)]).as_deref(), Some("4-7"));
        assert_eq!(cpus(&[0, 1, 2, 3], &[]).as_deref(), Some("4-7"));
        assert_eq!(cpus(&[0, 1], &[claim("2-7", false)]).as_deref(), Some("2-7"));
        assert_eq!(cpus(&[0, 1, 2, 3, 4, 5, 6, 7], &[]), None);
    }
}
