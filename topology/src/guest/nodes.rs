// SPDX-License-Identifier: Apache-2.0
//! Checks the NUMA nodes of a request: CPUs, memory, distances.
//!
//! First step from request to machine. Invariant of what it returns: each CPU in one node, each node with memory, a
//! full matrix of distances.

use crate::cpu_set::CpuSet;
use crate::guest::{
    LOCAL_DISTANCE, MAX_MEMORY_BYTES, MAX_NODES, Node, NodeRequest, PAGE_BYTES, REMOTE_DISTANCE, TopologyError,
    TopologyRequest,
};
use crate::id::{NodeId, VcpuIndex};

/// 1 to [`MAX_NODES`].
pub(super) fn check_count(nodes: usize) -> Result<(), TopologyError> {
    if (1..=MAX_NODES).contains(&nodes) { Ok(()) } else { Err(TopologyError::NodeCount { nodes }) }
}

/// The nodes, and the node of every CPU in CPU order.
pub(super) fn checked(request: &TopologyRequest) -> Result<(Vec<Node>, Vec<NodeId>), TopologyError> {
    check_count(request.nodes.len())?;
    let node_of = assign(request.cpus, &request.nodes)?;
    check_memory(&request.nodes)?;
    let nodes = numbered(&request.nodes)
        .map(|(id, node)| Node { id, cpus: node.cpus.clone(), memory_bytes: node.memory_bytes })
        .collect();
    Ok((nodes, node_of))
}

fn numbered(nodes: &[NodeRequest]) -> impl Iterator<Item = (NodeId, &NodeRequest)> {
    (0..).map(NodeId).zip(nodes)
}

fn assign(cpus: u32, nodes: &[NodeRequest]) -> Result<Vec<NodeId>, TopologyError> {
    let mut node_of = vec![None; VcpuIndex(cpus).index()];
    for (node, asked) in numbered(nodes) {
        for cpu in asked.cpus.iter() {
            let Some(place) = node_of.get_mut(cpu.index()) else {
                return Err(TopologyError::NoSuchCpu { node, cpu, cpus });
            };
            if let Some(first) = *place {
                return Err(TopologyError::NodesOverlap { cpu, first, second: node });
            }
            *place = Some(node);
        }
    }
    let assigned: Vec<NodeId> = node_of.iter().copied().flatten().collect();
    if assigned.len() == node_of.len() {
        return Ok(assigned);
    }
    let cpus: CpuSet<VcpuIndex> =
        (0..).map(VcpuIndex).zip(&node_of).filter(|(_, node)| node.is_none()).map(|(cpu, _)| cpu).collect();
    Err(TopologyError::CpusWithoutNode { cpus })
}

fn check_memory(nodes: &[NodeRequest]) -> Result<(), TopologyError> {
    if nodes.iter().all(|node| node.memory_bytes == 0) {
        return Err(TopologyError::NoMemory);
    }
    let mut total = 0u64;
    for (node, asked) in numbered(nodes) {
        let bytes = asked.memory_bytes;
        if bytes == 0 {
            return Err(TopologyError::NodeWithoutMemory { node });
        }
        if !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(TopologyError::MemoryNotPages { node, bytes });
        }
        total = total.saturating_add(bytes);
    }
    if total > MAX_MEMORY_BYTES { Err(TopologyError::TooMuchMemory) } else { Ok(()) }
}

/// The full matrix, row by row, row `from`.
pub(super) fn distances(count: usize, given: &[(NodeId, NodeId, u8)]) -> Result<Vec<u8>, TopologyError> {
    let mut matrix: Vec<Option<u8>> = vec![None; count * count];
    for &(from, to, distance) in given {
        check_distance(count, from, to, distance)?;
        let place = &mut matrix[from.index() * count + to.index()];
        if let Some(first) = place.filter(|&first| first != distance) {
            return Err(TopologyError::DistanceTwice { from, to, first, second: distance });
        }
        *place = Some(distance);
    }
    let any_remote = given.iter().any(|(from, to, _)| from != to);
    let ids = || (0..).map(NodeId).take(count);
    let mut full = Vec::with_capacity(matrix.len());
    for from in ids() {
        for to in ids() {
            let here = matrix[from.index() * count + to.index()];
            let back = matrix[to.index() * count + from.index()];
            full.push(match here.or(back) {
                _ if from == to => LOCAL_DISTANCE,
                Some(distance) => distance,
                None if any_remote => return Err(TopologyError::DistanceMissing { from, to }),
                None => REMOTE_DISTANCE,
            });
        }
    }
    Ok(full)
}

fn check_distance(nodes: usize, from: NodeId, to: NodeId, distance: u8) -> Result<(), TopologyError> {
    if from.index() >= nodes || to.index() >= nodes {
        return Err(TopologyError::DistanceWithoutNode { from, to, nodes });
    }
    if from == to {
        return if distance == LOCAL_DISTANCE {
            Ok(())
        } else {
            Err(TopologyError::SelfDistance { node: from, distance })
        };
    }
    match distance {
        0..LOCAL_DISTANCE => Err(TopologyError::DistanceTooShort { from, to, distance }),
        LOCAL_DISTANCE => Err(TopologyError::RemoteIsLocal { from, to }),
        u8::MAX => Err(TopologyError::Unreachable { from, to }),
        _ => Ok(()),
    }
}
