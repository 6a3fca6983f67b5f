// SPDX-License-Identifier: Apache-2.0
//! Every way in which a requested topology can be wrong.
//!
//! One variant per fault, each with the thing, the value, the cause and the next step in its message.

use thiserror::Error;

use crate::cpu_set::CpuSet;
use crate::id::{NodeId, VcpuIndex};
use crate::limits::{MAX_CPUS, MAX_MEMORY_BYTES, MAX_NODES, PAGE_BYTES};

/// Why a [`crate::guest::TopologyRequest`] describes no machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// No CPU at all.
    #[error("a machine of 0 CPUs cannot run: ask for at least 1")]
    NoCpus,
    /// More CPUs than any KVM takes.
    #[error("{cpus} CPUs are more than the {MAX_CPUS} that a machine can have: ask for fewer")]
    TooManyCpus {
        /// CPUs asked for.
        cpus: u32,
    },
    /// A count of the shape is 0.
    #[error("{level}=0 in the CPU shape: a machine has at least one of each, leave the key out to have it derived")]
    ZeroCount {
        /// Which count: `sockets`, `dies`, `clusters`, `cores` or `threads`.
        level: &'static str,
    },
    /// The counts of the shape do not multiply to the number of CPUs.
    #[error(
        "{cpus} CPUs do not fit the shape: sockets={sockets} x dies={dies} x clusters={clusters} x cores={cores} x \
         threads={threads} is {product}: ask for {product} CPUs or leave out the count that should be derived"
    )]
    ShapeMismatch {
        /// CPUs asked for.
        cpus: u32,
        /// Sockets, asked for or derived.
        sockets: u32,
        /// Dies in a socket.
        dies: u32,
        /// Clusters in a die.
        clusters: u32,
        /// Cores in a cluster.
        cores: u32,
        /// Threads in a core.
        threads: u32,
        /// What they multiply to.
        product: u64,
    },
    /// The CPUs of a node cannot be packages of the asked shape.
    #[error(
        "node {node} has {cpus} CPUs, which cannot be whole packages of {unit} CPUs (dies x clusters x cores x \
         threads): give the node a multiple of {unit}, or say sockets="
    )]
    NodeShapeMismatch {
        /// The node.
        node: NodeId,
        /// CPUs it has.
        cpus: u32,
        /// CPUs that a package is made of, or a multiple of which it is made of.
        unit: u64,
    },
    /// A die needs more APIC id bits than CPUID can state for a shared cache.
    #[error(
        "a die of this shape spans {bits} APIC id bits and CPUID states the sharing of a cache in 12: ask for fewer \
         CPUs a die (sockets= or dies=) or for counts nearer a power of two"
    )]
    DieTooWide {
        /// Bits of an APIC id below the die number.
        bits: u32,
    },
    /// Not 1 to [`MAX_NODES`] nodes.
    #[error("{nodes} NUMA nodes: ask for 1 to {MAX_NODES}")]
    NodeCount {
        /// Nodes asked for.
        nodes: usize,
    },
    /// A node names a CPU that the machine has not.
    #[error("node {node} names CPU {cpu}, but the machine has CPUs 0 to {}: correct cpus= of the node", cpus - 1)]
    NoSuchCpu {
        /// The node.
        node: NodeId,
        /// The CPU.
        cpu: VcpuIndex,
        /// CPUs of the machine.
        cpus: u32,
    },
    /// A CPU is in two nodes.
    #[error("CPU {cpu} is in node {first} and in node {second}: a CPU has one node, take it out of one of them")]
    NodesOverlap {
        /// The CPU.
        cpu: VcpuIndex,
        /// The node that names it first.
        first: NodeId,
        /// The node that names it again.
        second: NodeId,
    },
    /// CPUs are in no node.
    #[error("CPUs {cpus} are in no NUMA node: add them to cpus= of a node")]
    CpusWithoutNode {
        /// The CPUs.
        cpus: CpuSet<VcpuIndex>,
    },
    /// The machine has no memory at all.
    #[error("a machine with 0 bytes of memory cannot run: ask for some, as in --memory 1G")]
    NoMemory,
    /// One node has no memory.
    #[error("node {node} has no memory: give it some, as in memory=1G")]
    NodeWithoutMemory {
        /// The node.
        node: NodeId,
    },
    /// A node's memory is not whole pages.
    #[error("memory of node {node}, {bytes} bytes, is not whole pages: make it a multiple of {PAGE_BYTES}")]
    MemoryNotPages {
        /// The node.
        node: NodeId,
        /// Its memory in bytes.
        bytes: u64,
    },
    /// The memory of all nodes is more than a physical address can reach.
    #[error("the nodes have more than {MAX_MEMORY_BYTES} bytes together, all that x86 can address: ask for less")]
    TooMuchMemory,
    /// Memory does not fit the guest-physical address space of this machine.
    #[error(
        "{bytes} bytes of memory end at {end:#x}, beyond the {width_bits} bits of a guest-physical address on this \
         host: ask for less memory"
    )]
    MemoryBeyondAddressSpace {
        /// Memory asked for, in bytes.
        bytes: u64,
        /// First address behind it.
        end: u64,
        /// Width of a guest-physical address in bits.
        width_bits: u8,
    },
    /// The gap for devices is not whole pages, is empty or starts at 0.
    #[error("the device gap {start:#x}..{end:#x} is not a range of whole pages above 0: correct the layout")]
    BadGap {
        /// First address of the gap.
        start: u64,
        /// First address behind it.
        end: u64,
    },
    /// A distance names a node that the machine has not.
    #[error("distance {from}:{to} names a node that is not there: the nodes are 0 to {}", nodes - 1)]
    DistanceWithoutNode {
        /// Node that accesses.
        from: NodeId,
        /// Node that is accessed.
        to: NodeId,
        /// Nodes of the machine.
        nodes: usize,
    },
    /// A distance is below 10, which ACPI reserves.
    #[error("distance {from}:{to}={distance} is below 10, the distance of a node to itself: use 11 to 254")]
    DistanceTooShort {
        /// Node that accesses.
        from: NodeId,
        /// Node that is accessed.
        to: NodeId,
        /// The distance.
        distance: u8,
    },
    /// The distance of a node to itself is not 10.
    #[error("distance {node}:{node}={distance}: a node is at distance 10 from itself, leave it out")]
    SelfDistance {
        /// The node.
        node: NodeId,
        /// The distance.
        distance: u8,
    },
    /// Another node is as near as the node itself.
    #[error(
        "distance {from}:{to}=10 says that node {to} is local to node {from}: use 11 to 254, or make them one node"
    )]
    RemoteIsLocal {
        /// Node that accesses.
        from: NodeId,
        /// Node that is accessed.
        to: NodeId,
    },
    /// A distance of 255, which ACPI reads as "no path".
    #[error(
        "distance {from}:{to}=255 says that node {to} cannot be reached from node {from}, and a guest cannot use such \
         memory: use 11 to 254"
    )]
    Unreachable {
        /// Node that accesses.
        from: NodeId,
        /// Node that is accessed.
        to: NodeId,
    },
    /// One distance is given twice, and differently.
    #[error("distance {from}:{to} is given as {first} and as {second}: keep one")]
    DistanceTwice {
        /// Node that accesses.
        from: NodeId,
        /// Node that is accessed.
        to: NodeId,
        /// What was said first.
        first: u8,
        /// What was said then.
        second: u8,
    },
    /// Some distances are given and this pair has none.
    #[error(
        "distances are given, but none between nodes {from} and {to}: add {from}:{to}=N, or give no distance at all"
    )]
    DistanceMissing {
        /// The lower node of the pair.
        from: NodeId,
        /// The higher node of the pair.
        to: NodeId,
    },
    /// Threads of one core are in two nodes.
    #[error(
        "CPUs {first} and {second} are threads of one core but in nodes {first_node} and {second_node}: move the node \
         boundary to a multiple of threads=, or say threads=1"
    )]
    NodeSplitsCore {
        /// One CPU of the core.
        first: VcpuIndex,
        /// Another one.
        second: VcpuIndex,
        /// Node of the first.
        first_node: NodeId,
        /// Node of the second.
        second_node: NodeId,
    },
    /// Cores of one cluster, which share an L2 cache, are in two nodes.
    #[error(
        "CPUs {first} and {second} share the L2 cache of a cluster but are in nodes {first_node} and {second_node}: \
         move the node boundary to a cluster's end, or ask for one socket a node (sockets=)"
    )]
    NodeSplitsCluster {
        /// One CPU of the cluster.
        first: VcpuIndex,
        /// Another one.
        second: VcpuIndex,
        /// Node of the first.
        first_node: NodeId,
        /// Node of the second.
        second_node: NodeId,
    },
    /// CPUs of one die, which share the last-level cache, are in two nodes.
    #[error(
        "CPUs {first} and {second} share the last-level cache of a die but are in nodes {first_node} and \
         {second_node}: ask for one die (dies=) or one socket (sockets=) a node, or leave sockets= out"
    )]
    NodeSplitsDie {
        /// One CPU of the die.
        first: VcpuIndex,
        /// Another one.
        second: VcpuIndex,
        /// Node of the first.
        first_node: NodeId,
        /// Node of the second.
        second_node: NodeId,
    },
    /// A cache level outside 1 to 3, or a second cache of the same level and kind.
    #[error("a second L{level} {kind} cache, or one that is no level 1, 2 or 3: describe each cache once")]
    CacheLevel {
        /// The level.
        level: u8,
        /// The kind, in words.
        kind: &'static str,
    },
    /// A cache whose size is not sets x ways x line, with 1 to 1024 ways and a line that is a power of two.
    #[error(
        "an L{level} cache of {size_bytes} bytes cannot have {ways} ways of {line_bytes}-byte lines: the size must be a \
         multiple of ways x line, ways 1 to 1024, and the line a power of two up to 4096"
    )]
    CacheGeometry {
        /// The level.
        level: u8,
        /// Size in bytes.
        size_bytes: u64,
        /// Ways of associativity.
        ways: u32,
        /// Line in bytes.
        line_bytes: u32,
    },
}
