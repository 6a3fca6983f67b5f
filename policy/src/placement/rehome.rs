// SPDX-License-Identifier: Apache-2.0
//! When the memory of a guest node follows its vCPUs, instead of the other way round.
//!
//! vCPUs follow memory (rule `numa`) for as long as there is a CPU near it. Where there is none any more, because the CPUs
//! of the home went offline or left the cpuset, every access is remote until the memory moves too. Moving it costs a copy
//! of all of it, so nothing less is a reason. Invariant: a node the user has tied stays.

use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode};

use super::{Guest, Home};

/// Guest nodes whose home (`homes`, in the order of the guest's nodes; `None` for one that stays where it is) has no usable
/// CPU, while all their vCPUs are on one other node that has the free memory: where it should go.
#[must_use]
pub fn rehome(host: &HostTopology, guest: &Guest, places: &[HostCpu], homes: &[Option<HostNode>]) -> Vec<Home> {
    let node_of = |cpu: &HostCpu| host.index_of(*cpu).map(|index| host.cpus()[index].node);
    let mut moves = Vec::new();
    for (index, (node, home)) in guest.nodes.iter().zip(homes).enumerate() {
        let Some(at) = home.and_then(|id| host.node_index(id)) else { continue };
        let lost = host.nodes()[at].cpus.intersection(host.usable()).is_empty();
        let mine = guest.vcpus.iter().zip(places).filter(|(vcpu, _)| vcpu.node == index);
        let mut nodes = mine.map(|(_, place)| node_of(place));
        let Some(to) = nodes.next().flatten().filter(|first| lost && nodes.all(|other| other == Some(*first))) else {
            continue;
        };
        let there = &host.nodes()[to];
        if to != at && there.free_bytes.is_none_or(|free| free >= node.memory_bytes) {
            moves.push(Home { guest: node.id, host: Some(there.id) });
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use topology::guest::{GuestTopology, TopologyRequest};
    use topology::host::Capture;

    use super::*;

    /// Two nodes of two CPUs, of which the process may use `usable`.
    fn host(usable: &str) -> HostTopology {
        let node = |node: u32, cpus: &str| {
            let memory = format!("Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 1048576 kB");
            format!(
                "== devices/system/node/node{node}/cpulist\n{cpus}\n== devices/system/node/node{node}/meminfo\n{memory}\n"
            )
        };
        let cpus = format!("== devices/system/cpu/online\n0-3\n== self/affinity\n{usable}\n");
        let text = [cpus, node(0, "0-1"), node(1, "2-3")].concat();
        HostTopology::from_capture(&Capture::parse(&text).unwrap()).unwrap()
    }

    fn guest() -> Guest {
        Guest::new(&GuestTopology::new(&TopologyRequest::even(2, 1, 64 << 20).unwrap()).unwrap())
    }

    #[test]
    fn memory_follows_only_where_no_cpu_is_left_near_it() {
        let both = [HostCpu(2), HostCpu(3)];
        let homes = [Some(HostNode(0))];
        let moved = rehome(&host("2-3"), &guest(), &both, &homes);
        assert_eq!(moved.iter().map(|home| home.host).collect::<Vec<_>>(), [Some(HostNode(1))]);
        assert!(rehome(&host("0-3"), &guest(), &both, &homes).is_empty(), "vCPUs can come back");
        assert!(rehome(&host("2-3"), &guest(), &both, &[Some(HostNode(1))]).is_empty(), "it is there");
        assert!(rehome(&host("2-3"), &guest(), &both, &[None]).is_empty(), "what is tied stays");
        assert!(rehome(&host("2-3"), &guest(), &[], &homes).is_empty(), "nobody is anywhere");
    }
}
