// SPDX-License-Identifier: Apache-2.0
//! Derives the missing counts of a shape and gives every CPU its position.
//!
//! Second step from request to machine, after the nodes are known to cover the CPUs. CPUs are dealt to packages in
//! order, thread fastest, then core, cluster, die. Invariant: packages differ in their cores only.

use crate::guest::{MAX_CPUS, Node, Position, Shape, ShapeRequest, TopologyError, TopologyRequest};
use crate::id::VcpuIndex;

/// Counts that no derivation can mend.
pub(super) fn check_counts(request: &TopologyRequest) -> Result<(), TopologyError> {
    let cpus = request.cpus;
    if cpus == 0 {
        return Err(TopologyError::NoCpus);
    }
    if cpus > MAX_CPUS {
        return Err(TopologyError::TooManyCpus { cpus });
    }
    let ShapeRequest { sockets, dies, clusters, cores, threads } = request.shape;
    let counts = [("sockets", sockets), ("dies", dies), ("clusters", clusters), ("cores", cores), ("threads", threads)];
    match counts.into_iter().find(|(_, count)| *count == Some(0)) {
        Some((level, _)) => Err(TopologyError::ZeroCount { level }),
        None => Ok(()),
    }
}

/// A package: its CPUs in order, and the cores of each of its clusters.
struct Package {
    cpus: Vec<VcpuIndex>,
    cores: u32,
}

/// The shape, and the position of every CPU in CPU order.
pub(super) fn arrange(request: &TopologyRequest, nodes: &[Node]) -> Result<(Shape, Vec<Position>), TopologyError> {
    let nodes_with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    let (packages, threads) = if request.shape.sockets.is_none() && nodes_with_cpus > 1 {
        (packages_of_nodes(&request.shape, nodes)?, request.shape.threads.unwrap_or(1))
    } else {
        packages_of_machine(request)?
    };
    let shape = Shape {
        packages: u32::try_from(packages.len()).unwrap_or(u32::MAX),
        dies: request.shape.dies.unwrap_or(1),
        clusters: request.shape.clusters.unwrap_or(1),
        cores: packages.iter().map(|package| package.cores).max().unwrap_or(1),
        threads,
    };
    let mut placed: Vec<(VcpuIndex, Position)> = Vec::with_capacity(VcpuIndex(request.cpus).index());
    for (number, package) in (0..).zip(&packages) {
        let cores = package.cores;
        placed.extend((0..).zip(&package.cpus).map(|(rank, &cpu)| (cpu, position(number, rank, cores, &shape))));
    }
    placed.sort_unstable_by_key(|(cpu, _)| *cpu);
    Ok((shape, placed.into_iter().map(|(_, position)| position).collect()))
}

fn position(package: u32, rank: u32, cores: u32, shape: &Shape) -> Position {
    let thread = rank % shape.threads;
    let rank = rank / shape.threads;
    let core = rank % cores;
    let rank = rank / cores;
    Position { package, die: rank / shape.clusters, cluster: rank % shape.clusters, core, thread }
}

/// QEMU's derivation (`hw/core/machine-smp.c`, cores before sockets), over the whole machine.
fn packages_of_machine(request: &TopologyRequest) -> Result<(Vec<Package>, u32), TopologyError> {
    let ShapeRequest { sockets, dies, clusters, cores, threads } = request.shape;
    let (cpus, dies, clusters) = (request.cpus, dies.unwrap_or(1), clusters.unwrap_or(1));
    let rest = |counts: [u32; 4]| u32::try_from(u64::from(cpus) / product(&counts)).unwrap_or(u32::MAX).max(1);
    let (sockets, cores, threads) = match (sockets, cores) {
        (sockets, None) => {
            let (sockets, threads) = (sockets.unwrap_or(1), threads.unwrap_or(1));
            (sockets, rest([sockets, dies, clusters, threads]), threads)
        }
        (None, Some(cores)) => {
            let threads = threads.unwrap_or(1);
            (rest([dies, clusters, cores, threads]), cores, threads)
        }
        (Some(sockets), Some(cores)) => {
            (sockets, cores, threads.unwrap_or_else(|| rest([sockets, dies, clusters, cores])))
        }
    };
    let product = product(&[sockets, dies, clusters, cores, threads]);
    if product != u64::from(cpus) {
        return Err(TopologyError::ShapeMismatch { cpus, sockets, dies, clusters, cores, threads, product });
    }
    let all: Vec<VcpuIndex> = (0..cpus).map(VcpuIndex).collect();
    let size = VcpuIndex(cpus / sockets).index();
    Ok((all.chunks(size).map(|cpus| Package { cpus: cpus.to_vec(), cores }).collect(), threads))
}

/// Packages that each lie in one node, in the order of their first CPUs, so that CPU 0 comes first.
fn packages_of_nodes(shape: &ShapeRequest, nodes: &[Node]) -> Result<Vec<Package>, TopologyError> {
    let fixed = [shape.dies.unwrap_or(1), shape.clusters.unwrap_or(1), shape.threads.unwrap_or(1)];
    let unit = product(&fixed).saturating_mul(u64::from(shape.cores.unwrap_or(1)));
    let mut packages = Vec::new();
    for node in nodes.iter().filter(|node| !node.cpus.is_empty()) {
        let cpus: Vec<VcpuIndex> = node.cpus.iter().collect();
        let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
        let Some(units) = u64::from(count).is_multiple_of(unit).then(|| u64::from(count) / unit) else {
            return Err(TopologyError::NodeShapeMismatch { node: node.id, cpus: count, unit });
        };
        let (cores, packages_here) = match shape.cores {
            Some(cores) => (cores, units),
            None => (u32::try_from(units).unwrap_or(u32::MAX), 1),
        };
        let size = cpus.len() / usize::try_from(packages_here).unwrap_or(1);
        packages.extend(cpus.chunks(size).map(|cpus| Package { cpus: cpus.to_vec(), cores }));
    }
    packages.sort_by_key(|package| package.cpus.first().copied());
    Ok(packages)
}

fn product(counts: &[u32]) -> u64 {
    counts.iter().fold(1, |product, &count| product.saturating_mul(u64::from(count)))
}
