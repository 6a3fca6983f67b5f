// SPDX-License-Identifier: Apache-2.0
//! NUMA nodes: which CPU belongs to which, how far they are apart, how much memory each has.
//!
//! Invariant: every online CPU belongs to exactly one node, and the distance matrix has one entry per ordered pair.

use super::text::{parse_list, parse_number};
use super::{Capture, Degradation, HostError, MAX_NODES, Node};
use crate::cpu_set::CpuSet;
use crate::id::{HostCpu, HostNode};

const NODE: &str = "devices/system/node/node";
/// Distance to oneself, and the least to others (ACPI 6.5, section 5.2.17).
const LOCAL_DISTANCE: u8 = 10;
/// Assumed between nodes that do not say (`REMOTE_DISTANCE`, include/linux/topology.h).
const REMOTE_DISTANCE: u8 = 20;

/// The nodes, ascending, and the node index of every CPU.
pub(super) fn nodes(
    capture: &Capture,
    ids: &[HostCpu],
    degradations: &mut Vec<Degradation>,
) -> Result<(Vec<Node>, Vec<usize>), HostError> {
    let numbers = capture.numbers(NODE);
    if numbers.len() > MAX_NODES {
        return Err(HostError::CaptureTooLarge { what: "nodes", limit: MAX_NODES });
    }
    let mut owner: Vec<Option<usize>> = vec![None; ids.len()];
    let mut found: Vec<HostNode> = Vec::new();
    for number in numbers {
        let path = format!("{NODE}{number}/cpulist");
        let cpus = parse_list(&path, capture.get(&path).unwrap_or_default())?;
        for index in cpus.iter().filter_map(|cpu| ids.binary_search(&cpu).ok()) {
            if let Some(first) = owner[index].replace(found.len()) {
                let (cpu, node) = (ids[index], found[first]);
                return Err(HostError::CpuInTwoNodes { cpu, node, other: HostNode(number) });
            }
        }
        found.push(HostNode(number));
    }
    let homeless = owner.iter().filter(|owner| owner.is_none()).count();
    if found.is_empty() {
        found.push(HostNode(0));
        degradations.push(Degradation::NoNodes);
    } else if homeless > 0 {
        degradations.push(Degradation::CpusWithoutNode { cpus: homeless });
    }
    let owner: Vec<usize> = owner.into_iter().map(|owner| owner.unwrap_or(0)).collect();
    let mut cpus: Vec<Vec<HostCpu>> = vec![Vec::new(); found.len()];
    for (cpu, &node) in ids.iter().zip(&owner) {
        cpus[node].push(*cpu);
    }
    let nodes = found.into_iter().zip(cpus).map(|(id, cpus)| node(capture, id, cpus, degradations));
    Ok((nodes.collect::<Result<_, _>>()?, owner))
}

fn node(
    capture: &Capture,
    id: HostNode,
    cpus: Vec<HostCpu>,
    degradations: &mut Vec<Degradation>,
) -> Result<Node, HostError> {
    let path = format!("{NODE}{id}/meminfo");
    let text = capture.get(&path).unwrap_or_default();
    let memory_bytes = meminfo(&path, text, "MemTotal:")?;
    let mut free_bytes = meminfo(&path, text, "MemFree:")?;
    // What the kernel gives up for the asking counts as free (Documentation/filesystems/proc.rst, "MemAvailable").
    for key in ["Active(file):", "Inactive(file):", "SReclaimable:"] {
        let reclaimable = meminfo(&path, text, key)?.unwrap_or(0);
        free_bytes = free_bytes.map(|free| free.saturating_add(reclaimable));
    }
    if memory_bytes.is_none() {
        degradations.push(Degradation::NoMemoryInfo { node: id });
    }
    Ok(Node { id, cpus: cpus.into_iter().collect::<CpuSet<_>>(), memory_bytes, free_bytes })
}

/// One amount of a node's meminfo, whose lines are `Node 0 MemTotal:  5597388 kB`, in bytes.
fn meminfo(path: &str, text: &str, key: &str) -> Result<Option<u64>, HostError> {
    let value = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != key);
        words.next().and(words.next())
    });
    let Some(value) = value else { return Ok(None) };
    let kib: u64 = parse_number(path, value, "an amount of memory in kB")?;
    Ok(Some(kib.saturating_mul(1024)))
}

/// The distance matrix, row by row.
pub(super) fn distances(
    capture: &Capture,
    nodes: &[Node],
    degradations: &mut Vec<Degradation>,
) -> Result<Vec<u8>, HostError> {
    let mut matrix = Vec::with_capacity(nodes.len() * nodes.len());
    for node in nodes {
        let path = format!("{NODE}{}/distance", node.id);
        let Some(text) = capture.get(&path) else {
            degradations.push(Degradation::NoDistances);
            matrix.extend(nodes.iter().map(|other| if other.id == node.id { LOCAL_DISTANCE } else { REMOTE_DISTANCE }));
            continue;
        };
        let found = text.split_whitespace().count();
        if found != nodes.len() {
            return Err(HostError::DistanceCount { node: node.id, found, nodes: nodes.len() });
        }
        for (word, other) in text.split_whitespace().zip(nodes) {
            let distance: u8 = parse_number(&path, word, "a distance from 10 to 255")?;
            if distance < LOCAL_DISTANCE || (other.id == node.id && distance != LOCAL_DISTANCE) {
                return Err(HostError::BadDistance { node: node.id, other: other.id, distance });
            }
            matrix.push(distance);
        }
    }
    Ok(matrix)
}
