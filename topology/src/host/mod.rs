// SPDX-License-Identifier: Apache-2.0
//! The host as a tree, built from captured text: node, last-level cache, cluster, core, thread.
//!
//! ```text
//! HostTopology
//!   nodes()    NUMA nodes, with memory and distances        parent: none
//!   llcs()     CPUs that share the last-level cache         parent: a node
//!   clusters() CPUs that share an L2 (or a cluster)         parent: an LLC
//!   cores()    hardware threads of one core                 parent: a cluster
//!   cpus()     online CPUs, ascending by number             each knows its place on every level
//! ```
//! Packages and dies are known for every CPU but are no level of the tree: a package may hold several nodes and a node
//! several packages.
//!
//! Text comes from a [`Capture`], so that a fixture of a machine we do not have is as good as the running host. What is
//! missing is filled in and listed in [`HostTopology::degradations`]; what contradicts itself is refused.
//!
//! Invariant: every level is a partition of the online CPUs, and every group lies whole within its parent.

mod build;
mod capture;
mod error;
mod memory;
mod partition;
mod rank;
mod shape;
mod text;

pub use capture::{Capture, MAX_CONTENT_BYTES, MAX_FILES, MAX_TEXT_BYTES, path};
pub use error::HostError;
pub use rank::RankSource;
pub use shape::HostShape;

use std::fmt;

use crate::cpu_set::CpuSet;
use crate::id::{HostCpu, HostNode};

/// One more than the highest CPU number: x86's largest `NR_CPUS` (arch/x86/Kconfig, `MAXSMP`).
pub const MAX_CPUS: u32 = 8192;
/// Most nodes: x86's largest `NODES_SHIFT` is 10 (arch/x86/Kconfig).
pub const MAX_NODES: usize = 1024;

/// A kind of group of CPUs, from the smallest to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Hardware threads of one core.
    Core,
    /// CPUs that share an L2 cache, or an arm64 cluster.
    Cluster,
    /// CPUs that share the last-level cache.
    Llc,
    /// CPUs of one die.
    Die,
    /// CPUs of one socket.
    Package,
    /// CPUs of one NUMA node.
    Node,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Cluster => "cluster",
            Self::Llc => "last-level cache",
            Self::Die => "die",
            Self::Package => "package",
            Self::Node => "node",
        })
    }
}

/// One online CPU and its place on every level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: HostCpu,
    /// Its place among the threads of its core, 0-based, by ascending number.
    pub thread: u32,
    /// Index into [`HostTopology::cores`].
    pub core: usize,
    /// Index into [`HostTopology::clusters`].
    pub cluster: usize,
    /// Index into [`HostTopology::llcs`].
    pub llc: usize,
    /// Die, counted over the whole host, 0-based.
    pub die: usize,
    /// Package, 0-based.
    pub package: usize,
    /// Index into [`HostTopology::nodes`].
    pub node: usize,
    /// How much the machine prefers this CPU; higher is better. All zero if there is no preference, or only an equal one.
    pub rank: u32,
}

/// A group of CPUs on one level of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its online CPUs; never empty.
    pub cpus: CpuSet<HostCpu>,
    /// Index of the group that holds it, on the next level of the tree.
    pub parent: usize,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: HostNode,
    /// Its online CPUs; empty for a node that only has memory.
    pub cpus: CpuSet<HostCpu>,
    /// Memory in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// Free memory in bytes when captured, if known: what is unused, and file caches where they were captured.
    pub free_bytes: Option<u64>,
}

/// Something that was not captured, and what is assumed instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Degradation {
    /// The list of online CPUs is missing; taken from what else names CPUs.
    NoOnlineList,
    /// A level's files are missing for some CPUs, or for all.
    LevelMissing {
        /// The level.
        level: Level,
        /// CPUs without the file.
        cpus: usize,
    },
    /// The last-level cache spans several nodes: it is treated as one cache per node.
    LlcSplitByNode,
    /// Clusters are larger than the last-level cache, and are ignored (as Linux does, drivers/base/arch_topology.c).
    ClusterIgnored,
    /// No node directory: the host is treated as one node.
    NoNodes,
    /// CPUs that no node lists: they count to the first node.
    CpusWithoutNode {
        /// How many.
        cpus: usize,
    },
    /// A node has no distance file: 10 to itself and 20 to all others.
    NoDistances,
    /// A node's amount of memory is unknown.
    NoMemoryInfo {
        /// The node.
        node: HostNode,
    },
    /// A preference was found for some CPUs only, and is not used.
    RankIncomplete {
        /// Which.
        source: RankSource,
        /// CPUs without one.
        cpus: usize,
    },
    /// The process's affinity was not captured: every online CPU counts as allowed.
    NoAffinity,
    /// Every allowed CPU is isolated from the scheduler, so isolated CPUs are used.
    OnlyIsolated,
}

impl fmt::Display for Degradation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOnlineList => f.write_str("no list of online CPUs: taken from the other files"),
            Self::LevelMissing { level, cpus } => write!(f, "{cpus} CPUs do not say which {level} they belong to"),
            Self::LlcSplitByNode => f.write_str("a last-level cache spans nodes: treated as one per node"),
            Self::ClusterIgnored => f.write_str("clusters are larger than the last-level cache: ignored"),
            Self::NoNodes => f.write_str("no NUMA information: one node assumed"),
            Self::CpusWithoutNode { cpus } => write!(f, "{cpus} CPUs belong to no node: counted to the first"),
            Self::NoDistances => f.write_str("node distances unknown: 10 within a node and 20 between nodes assumed"),
            Self::NoMemoryInfo { node } => write!(f, "memory of node {node} unknown"),
            Self::RankIncomplete { source, cpus } => {
                write!(f, "{source} unknown for {cpus} CPUs: not used to prefer CPUs")
            }
            Self::NoAffinity => f.write_str("affinity unknown: every online CPU counts as allowed"),
            Self::OnlyIsolated => f.write_str("every allowed CPU is isolated: isolated CPUs are used"),
        }
    }
}

/// The host: see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTopology {
    cpus: Vec<Cpu>,
    cores: Vec<Group>,
    clusters: Vec<Group>,
    llcs: Vec<Group>,
    nodes: Vec<Node>,
    distances: Vec<u8>,
    usable: CpuSet<HostCpu>,
    isolated: CpuSet<HostCpu>,
    rank_source: RankSource,
    degradations: Vec<Degradation>,
}

impl HostTopology {
    /// Builds the tree.
    ///
    /// # Errors
    /// [`HostError`] if the capture contradicts itself, holds text that cannot be read, or leaves no CPU to run on.
    pub fn from_capture(capture: &Capture) -> Result<Self, HostError> {
        build::build(capture)
    }

    /// Online CPUs, ascending by number. The position in this slice is a CPU's dense index.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Dense index of an online CPU.
    #[must_use]
    pub fn index_of(&self, cpu: HostCpu) -> Option<usize> {
        self.cpus.binary_search_by_key(&cpu, |cpu| cpu.id).ok()
    }

    /// Cores, in order of their lowest CPU.
    #[must_use]
    pub fn cores(&self) -> &[Group] {
        &self.cores
    }

    /// Clusters, in order of their lowest CPU. Where the machine has none, each core is a cluster.
    #[must_use]
    pub fn clusters(&self) -> &[Group] {
        &self.clusters
    }

    /// Last-level caches, in order of their lowest CPU.
    #[must_use]
    pub fn llcs(&self) -> &[Group] {
        &self.llcs
    }

    /// Nodes, ascending by number, with and without CPUs.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Index of a node in [`Self::nodes`].
    #[must_use]
    pub fn node_index(&self, node: HostNode) -> Option<usize> {
        self.nodes.binary_search_by_key(&node, |node| node.id).ok()
    }

    /// Distance from one node to another, both as indices into [`Self::nodes`]; 10 is local (ACPI 6.5, section 5.2.17).
    #[must_use]
    pub fn distance(&self, from: usize, to: usize) -> u8 {
        self.distances[from * self.nodes.len() + to]
    }

    /// CPUs that may be used: online, in the process's affinity and cpuset, and not isolated (unless all of those are).
    #[must_use]
    pub fn usable(&self) -> &CpuSet<HostCpu> {
        &self.usable
    }

    /// CPUs isolated from the scheduler (`isolcpus=`).
    #[must_use]
    pub fn isolated(&self) -> &CpuSet<HostCpu> {
        &self.isolated
    }

    /// Where [`Cpu::rank`] comes from.
    #[must_use]
    pub fn rank_source(&self) -> RankSource {
        self.rank_source
    }

    /// Whether some core has more than one thread.
    #[must_use]
    pub fn has_smt(&self) -> bool {
        self.cores.len() < self.cpus.len()
    }

    /// Whether some cluster is more than one core, so that looking there first makes a difference.
    #[must_use]
    pub fn has_clusters(&self) -> bool {
        self.clusters.len() < self.cores.len()
    }

    /// What was not known and what is assumed instead, without repeats.
    #[must_use]
    pub fn degradations(&self) -> &[Degradation] {
        &self.degradations
    }
}

#[cfg(test)]
mod tests;
