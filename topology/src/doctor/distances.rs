// SPDX-License-Identifier: Apache-2.0
//! Distances: the SLIT is one that Linux takes, and the HMAT says the same in other units.
//!
//! drivers/acpi/numa/srat.c `slit_valid`: the diagonal is 10 and everything else more, or the table is ignored.

use std::collections::BTreeSet;

use super::{Evidence, Finding};
use crate::acpi::decode::{Decoded, Hmat, Locality, Quantity, Slit};
use crate::guest::{LOCAL_DISTANCE, REMOTE_DISTANCE};
use crate::id::NodeId;

/// The nodes that the SRAT names, ascending; node 0 alone when there is none.
pub(super) fn nodes(acpi: &Decoded) -> Vec<NodeId> {
    let Some(srat) = &acpi.srat else { return vec![NodeId(0)] };
    let named = srat.cpus.iter().map(|cpu| cpu.node).chain(srat.memory.iter().map(|memory| memory.node));
    named.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The distances that Linux uses: the SLIT's, or 10 and 20 when it takes none (`__node_distance`).
pub(super) fn linux(acpi: &Decoded) -> impl Fn(NodeId, NodeId) -> u8 + use<'_> {
    let slit = acpi.slit.as_ref().filter(|slit| faults(slit).is_empty());
    move |from, to| {
        let default = if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        slit.and_then(|slit| slit.distance(from, to)).unwrap_or(default)
    }
}

pub(super) fn check(evidence: &Evidence<'_>, findings: &mut Vec<Finding>) {
    let nodes = nodes(evidence.acpi);
    match &evidence.acpi.slit {
        None if nodes.len() > 1 => findings.push(Finding::NoSlit { nodes: nodes.len() }),
        None => {}
        Some(slit) => {
            if slit.localities() as usize != nodes.len() {
                findings.push(Finding::SlitSize { localities: slit.localities(), nodes: nodes.len() });
            }
            findings.extend(faults(slit));
        }
    }
    if let Some(hmat) = &evidence.acpi.hmat {
        check_nodes(hmat, &nodes, findings);
        let distance = linux(evidence.acpi);
        for locality in hmat.localities.iter().filter(|locality| locality.quantity == Quantity::LatencyNs) {
            check_order(locality, &distance, findings);
        }
    }
}

fn faults(slit: &Slit) -> Vec<Finding> {
    let ids = || (0..slit.localities()).map(NodeId);
    let pairs = ids().flat_map(|from| ids().map(move |to| (from, to)));
    let fault = |(from, to): (NodeId, NodeId)| {
        let distance = slit.distance(from, to)?;
        match distance {
            LOCAL_DISTANCE if from == to => None,
            _ if from == to => Some(Finding::SlitDiagonal { node: from, distance }),
            0..=LOCAL_DISTANCE => Some(Finding::SlitTooShort { from, to, distance }),
            _ => None,
        }
    };
    pairs.filter_map(fault).collect()
}

fn check_nodes(hmat: &Hmat, nodes: &[NodeId], findings: &mut Vec<Finding>) {
    let of_domains = hmat.domains.iter().flat_map(|domain| domain.initiator.into_iter().chain([domain.memory]));
    let of_matrices = hmat.localities.iter().flat_map(|locality| locality.initiators.iter().chain(&locality.targets));
    let named: BTreeSet<NodeId> = of_domains.chain(of_matrices.copied()).collect();
    let unknown = named.into_iter().filter(|node| !nodes.contains(node));
    findings.extend(unknown.map(|node| Finding::HmatNode { node }));
}

/// From each node, latency must not fall where distance rises; the first contradiction of a row is named.
fn check_order(locality: &Locality, distance: &dyn Fn(NodeId, NodeId) -> u8, findings: &mut Vec<Finding>) {
    let columns = locality.targets.len();
    for (row, from) in locality.initiators.iter().enumerate() {
        let values = locality.values.get(row * columns..).unwrap_or(&[]);
        let mut targets: Vec<(u8, u64, NodeId)> = locality
            .targets
            .iter()
            .zip(values)
            .filter_map(|(to, value)| Some((distance(*from, *to), (*value)?, *to)))
            .collect();
        targets.sort_unstable();
        if let Some(pair) = targets.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            findings.push(Finding::HmatOrder { from: *from, nearer: pair[0].2, farther: pair[1].2 });
        }
    }
}
