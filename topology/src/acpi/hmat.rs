// SPDX-License-Identifier: Apache-2.0
//! HMAT: latency and bandwidth between CPUs and memory (ACPI 6.3 section 5.2.27).
//!
//! A guest has no physical memory of its own whose speed could be stated, only distances. So the numbers are the
//! distances in other units, and say nothing more: the SLIT's distance is a ratio to local access, 10; local access is
//! taken as [`LOCAL_LATENCY_NS`] and [`LOCAL_BANDWIDTH_MB_PER_S`], latency grows with the ratio and bandwidth shrinks
//! with it. A guest that orders nodes by HMAT orders them as by SLIT. There are no memory-side caches.
//!
//! Our own bytes: `acpi_tables` 0.2 fixes the revision at 1, where Linux takes a latency for nanoseconds instead of
//! picoseconds, sets the initiator of every memory as valid, which a node without CPUs has not, and indexes the matrix
//! by the number of initiators instead of targets. Invariant: initiators are the nodes with CPUs, targets the nodes
//! with memory, each in ascending order.

use super::sdt::{self, Fields};
use crate::id::NodeId;

/// The revision of the table in ACPI 6.3 (table 5-142).
pub(crate) const REVISION: u8 = 2;
/// What distance 10 means as a latency.
pub const LOCAL_LATENCY_NS: u64 = 100;
/// What distance 10 means as a bandwidth.
pub const LOCAL_BANDWIDTH_MB_PER_S: u64 = 10_000;
/// The distance of a node from itself (ACPI 6.3 section 5.2.17).
pub(crate) const LOCAL_DISTANCE: u8 = 10;
/// The distance that means: no way there (ACPI 6.3 section 5.2.17), and the entry that says so here.
pub(crate) const UNREACHABLE_DISTANCE: u8 = 255;
/// The entry of the matrix that says the same (table 5-146).
pub(crate) const UNREACHABLE_ENTRY: u16 = 0xFFFF;

/// Latency unit: an entry is the distance itself. 10 units are `LOCAL_LATENCY_NS`.
const LATENCY_UNIT_PS: u64 = LOCAL_LATENCY_NS * 1000 / LOCAL_DISTANCE as u64;
/// Bandwidth unit: a thousandth of the local bandwidth, so that distance 254 still has two digits.
const BANDWIDTH_UNIT_MB_PER_S: u64 = LOCAL_BANDWIDTH_MB_PER_S / 1000;
/// Data type of the matrix: access latency, read and write alike (table 5-146).
pub(crate) const ACCESS_LATENCY: u8 = 0;
/// Data type of the matrix: access bandwidth, read and write alike.
pub(crate) const ACCESS_BANDWIDTH: u8 = 3;

/// What a node is to this table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Domain {
    pub(crate) node: NodeId,
    pub(crate) has_cpus: bool,
    pub(crate) has_memory: bool,
}

/// The table for nodes in ascending order.
pub(crate) fn table(domains: &[Domain], distance: &dyn Fn(NodeId, NodeId) -> u8) -> Vec<u8> {
    let initiators: Vec<NodeId> = domains.iter().filter(|domain| domain.has_cpus).map(|domain| domain.node).collect();
    let targets: Vec<NodeId> = domains.iter().filter(|domain| domain.has_memory).map(|domain| domain.node).collect();
    let mut body = Vec::new();
    body.reserved(4);
    for domain in domains.iter().filter(|domain| domain.has_memory) {
        proximity(&mut body, *domain);
    }
    let mut matrix = |data_type, unit, entry: fn(u8) -> u16| {
        locality(&mut body, (data_type, unit), (&initiators, &targets), &|from, to| entry(distance(from, to)));
    };
    matrix(ACCESS_LATENCY, LATENCY_UNIT_PS, latency_entry);
    matrix(ACCESS_BANDWIDTH, BANDWIDTH_UNIT_MB_PER_S, bandwidth_entry);
    sdt::close(*b"HMAT", REVISION, &body)
}

/// Type 0, memory proximity domain attributes: flags, initiator, memory (table 5-144).
fn proximity(body: &mut Vec<u8>, domain: Domain) {
    // Flags bit 0: the initiator field is valid. Memory of a node without CPUs is attached to none of them.
    let (flags, initiator) = if domain.has_cpus { (1, domain.node.0) } else { (0, 0) };
    body.u16(0).reserved(2).u32(40).u16(flags).reserved(2).u32(initiator).u32(domain.node.0).reserved(20);
}

/// Type 1, system locality latency and bandwidth information (table 5-145).
fn locality(
    body: &mut Vec<u8>,
    (data_type, unit): (u8, u64),
    (initiators, targets): (&[NodeId], &[NodeId]),
    entry: &dyn Fn(NodeId, NodeId) -> u16,
) {
    let length = 32 + 4 * (initiators.len() + targets.len()) + 2 * initiators.len() * targets.len();
    // Length, flags (memory, not a cache), data type, minimum transfer size, reserved.
    body.u16(1).reserved(2).u32(count(length)).u8(0).u8(data_type).reserved(2);
    body.u32(count(initiators.len())).u32(count(targets.len())).reserved(4).u64(unit);
    for node in initiators.iter().chain(targets) {
        body.u32(node.0);
    }
    for from in initiators {
        for to in targets {
            body.u16(entry(*from, *to));
        }
    }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).expect("invariant: node counts are u32 and small")
}

/// Latency in `LATENCY_UNIT_PS`: the distance.
fn latency_entry(distance: u8) -> u16 {
    if distance == UNREACHABLE_DISTANCE { UNREACHABLE_ENTRY } else { u16::from(distance) }
}

/// Bandwidth in `BANDWIDTH_UNIT_MB_PER_S`: 1000 at distance 10, half of it at 20. Never 0, which means not provided.
fn bandwidth_entry(distance: u8) -> u16 {
    if distance == UNREACHABLE_DISTANCE {
        return UNREACHABLE_ENTRY;
    }
    1000 * u16::from(LOCAL_DISTANCE) / u16::from(distance.max(LOCAL_DISTANCE))
}
