// SPDX-License-Identifier: Apache-2.0
//! What can be wrong between CPUID, tables and memory: one variant per fault, with its reason and its remedy.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{ApicId, NodeId, VcpuIndex};

/// A fault. The text says what Linux does with it; [`Finding::remedy`] what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// The FADT does not say that the machine is hardware-reduced.
    #[error("the FADT lacks HW_REDUCED_ACPI: Linux looks for an SCI and fixed registers that are not there")]
    NotHardwareReduced,
    /// No sleep control and status ports.
    #[error("the FADT names no byte-wide sleep control and status ports: Linux cannot power the machine off")]
    NoSleepRegisters,
    /// No reset register.
    #[error("the FADT names no byte-wide reset port: Linux resets by other means, down to a triple fault")]
    NoResetRegister,
    /// A vCPU that the MADT does not name.
    #[error("CPU {cpu} with APIC id {apic_id} is not in the MADT: Linux does not start it")]
    CpuNotInMadt {
        /// The CPU.
        cpu: VcpuIndex,
        /// Its id in CPUID.
        apic_id: ApicId,
    },
    /// A MADT entry that no vCPU answers to.
    #[error("the MADT names APIC id {apic_id}, which no CPU has: Linux waits 10 s for it to start")]
    MadtCpuUnknown {
        /// The id.
        apic_id: ApicId,
    },
    /// Two MADT entries with one APIC id.
    #[error("the MADT names APIC id {apic_id} twice: Linux counts a CPU that does not exist")]
    MadtIdTwice {
        /// The id.
        apic_id: ApicId,
    },
    /// Two MADT entries with one UID.
    #[error("the MADT uses processor UID {uid} twice: PPTT and NMI entries cannot tell the CPUs apart")]
    MadtUidTwice {
        /// The UID.
        uid: u32,
    },
    /// A vCPU's entry is not at the place of its index.
    #[error("CPU {cpu} is entry {place} of the MADT: Linux numbers CPUs in the order of the table")]
    MadtOrder {
        /// The CPU.
        cpu: VcpuIndex,
        /// The 0-based place of its entry.
        place: usize,
    },
    /// An id in the wrong form of entry.
    #[error(
        "the MADT names APIC id {apic_id} in the wrong form: Linux ignores x2APIC entries below 255 beside local \
         APIC ones"
    )]
    MadtForm {
        /// The id.
        apic_id: ApicId,
    },
    /// A MADT entry that is not enabled.
    #[error("the MADT entry of APIC id {apic_id} is not enabled: Linux leaves the CPU out")]
    MadtDisabled {
        /// The id.
        apic_id: ApicId,
    },
    /// A vCPU that the SRAT does not place.
    #[error("CPU {cpu} with APIC id {apic_id} is not in the SRAT: Linux deals it to whichever node is next")]
    CpuNotInSrat {
        /// The CPU.
        cpu: VcpuIndex,
        /// Its id in CPUID.
        apic_id: ApicId,
    },
    /// A SRAT entry for an id that no vCPU has.
    #[error("the SRAT places APIC id {apic_id} on node {node}, but no CPU has it")]
    SratCpuUnknown {
        /// The id.
        apic_id: ApicId,
        /// The node.
        node: NodeId,
    },
    /// Two SRAT entries for one id.
    #[error("the SRAT places APIC id {apic_id} twice: Linux takes the last")]
    SratCpuTwice {
        /// The id.
        apic_id: ApicId,
    },
    /// A SRAT entry in another form than the MADT's.
    #[error("SRAT and MADT name APIC id {apic_id} in different forms")]
    SratForm {
        /// The id.
        apic_id: ApicId,
    },
    /// Memory without a node.
    #[error("memory {start:#x}..{end:#x} is not in the SRAT: beyond 1 MiB of it Linux discards all of NUMA")]
    MemoryNotInSrat {
        /// First address.
        start: u64,
        /// First address behind.
        end: u64,
    },
    /// Two ranges of the SRAT overlap.
    #[error("the SRAT names {start:#x}..{end:#x} twice: Linux refuses overlapping nodes")]
    SratMemoryTwice {
        /// First address.
        start: u64,
        /// First address behind.
        end: u64,
    },
    /// A range of the SRAT where there is no memory.
    #[error("the SRAT names {start:#x}..{end:#x}, where there is no memory")]
    SratMemoryUnknown {
        /// First address.
        start: u64,
        /// First address behind.
        end: u64,
    },
    /// Memory on another node than it was laid out for.
    #[error("memory {start:#x}..{end:#x} belongs to node {belongs}, but the SRAT says {says}")]
    MemoryNode {
        /// First address.
        start: u64,
        /// First address behind.
        end: u64,
        /// Its node in the memory map.
        belongs: NodeId,
        /// Its node in the SRAT.
        says: NodeId,
    },
    /// Several nodes and no distances.
    #[error("{nodes} nodes, but no SLIT: Linux takes every node for equally far")]
    NoSlit {
        /// How many nodes.
        nodes: usize,
    },
    /// The SLIT is for another number of nodes.
    #[error("the SLIT has {localities} rows, the SRAT {nodes} nodes")]
    SlitSize {
        /// Rows of the SLIT.
        localities: u32,
        /// Nodes of the SRAT.
        nodes: usize,
    },
    /// A node is not at distance 10 from itself.
    #[error("the SLIT has node {node} at distance {distance} from itself: Linux wants 10 and ignores the table")]
    SlitDiagonal {
        /// The node.
        node: NodeId,
        /// The distance.
        distance: u8,
    },
    /// A remote node is as near as the local one.
    #[error(
        "the SLIT has distance {distance} from node {from} to {to}: Linux wants more than 10 and ignores the table"
    )]
    SlitTooShort {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// The distance.
        distance: u8,
    },
    /// The HMAT speaks of a node that the SRAT does not have.
    #[error("the HMAT names node {node}, the SRAT does not: Linux drops what it says of it")]
    HmatNode {
        /// The node.
        node: NodeId,
    },
    /// The HMAT orders two nodes the other way round than the SLIT.
    #[error(
        "from node {from} the HMAT has {nearer} slower than {farther}, the SLIT nearer: Linux' memory tiers \
         follow the HMAT, its scheduler the SLIT"
    )]
    HmatOrder {
        /// From this node.
        from: NodeId,
        /// The nearer one by SLIT.
        nearer: NodeId,
        /// The farther one by SLIT.
        farther: NodeId,
    },
    /// Threads of one core on two nodes.
    #[error(
        "CPUs {first} and {second} are threads of one core, on nodes {first_node} and {second_node}: Linux warns \
         (topology_sane, smt) and ignores it"
    )]
    SmtAcrossNodes {
        /// A thread.
        first: VcpuIndex,
        /// Another thread.
        second: VcpuIndex,
        /// Its node.
        first_node: NodeId,
        /// Its node.
        second_node: NodeId,
    },
    /// An L2 cache on two nodes.
    #[error(
        "CPUs {first} and {second} share an L2 cache, on nodes {first_node} and {second_node}: Linux warns \
         (topology_sane, l2c) and ignores it"
    )]
    L2AcrossNodes {
        /// A CPU.
        first: VcpuIndex,
        /// Another CPU.
        second: VcpuIndex,
        /// Its node.
        first_node: NodeId,
        /// Its node.
        second_node: NodeId,
    },
    /// A last-level cache on two nodes.
    #[error(
        "CPUs {first} and {second} share a last-level cache, on nodes {first_node} and {second_node}: Linux \
         warns (topology_sane, llc) and ignores it"
    )]
    LlcAcrossNodes {
        /// A CPU.
        first: VcpuIndex,
        /// Another CPU.
        second: VcpuIndex,
        /// Its node.
        first_node: NodeId,
        /// Its node.
        second_node: NodeId,
    },
    /// Two vCPUs that state different caches.
    #[error("CPU {cpu} states other caches than CPU 0: Linux assumes that all are alike")]
    CachesDiffer {
        /// The CPU.
        cpu: VcpuIndex,
    },
    /// A package number that no CPU has, below one that a CPU has.
    #[error("package {package} has no CPU, but a higher one has: Linux reserves a package that never appears")]
    EmptyPackage {
        /// The package.
        package: u32,
    },
    /// A vCPU that the PPTT does not know.
    #[error("CPU {cpu} with UID {uid} is no leaf of the PPTT")]
    PpttCpuMissing {
        /// The CPU.
        cpu: VcpuIndex,
        /// Its UID in the MADT.
        uid: u32,
    },
    /// A PPTT leaf that no vCPU is.
    #[error("the PPTT has a leaf with UID {uid}, the MADT has none")]
    PpttCpuUnknown {
        /// The UID.
        uid: u32,
    },
    /// Two PPTT leaves with one UID.
    #[error("the PPTT has two leaves with UID {uid}")]
    PpttCpuTwice {
        /// The UID.
        uid: u32,
    },
    /// A node of the PPTT above no CPU.
    #[error("the PPTT has a package at {offset:#x} without a CPU")]
    PpttEmptyPackage {
        /// Where the node starts.
        offset: u32,
    },
    /// PPTT and CPUID disagree on who is in a package.
    #[error("CPUs {first} and {second} share a package in only one of PPTT and CPUID")]
    PpttPackage {
        /// A CPU.
        first: VcpuIndex,
        /// Another CPU.
        second: VcpuIndex,
    },
    /// PPTT and CPUID disagree on who shares a core.
    #[error("CPUs {first} and {second} share a core in only one of PPTT and CPUID")]
    PpttCore {
        /// A CPU.
        first: VcpuIndex,
        /// Another CPU.
        second: VcpuIndex,
    },
    /// PPTT and CPUID disagree on who shares a cache, or on its size.
    #[error("CPU {cpu} has another {cache} in the PPTT than in CPUID")]
    PpttCache {
        /// The CPU.
        cpu: VcpuIndex,
        /// The cache: `L1d`, `L3`.
        cache: String,
    },
    /// A scheduler domain that is not inside the next wider one.
    #[error("CPU {cpu}: its {child} domain is no part of its {parent} domain; Linux reports `arch topology borken`")]
    DomainsNotNested {
        /// The CPU.
        cpu: VcpuIndex,
        /// The narrower level.
        child: String,
        /// The wider level.
        parent: String,
    },
}

impl Finding {
    /// What to change so that the fault goes away.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotHardwareReduced | Self::NoSleepRegisters | Self::NoResetRegister => {
                "write the FADT with the platform's power ports"
            }
            Self::CpuNotInMadt { .. }
            | Self::MadtCpuUnknown { .. }
            | Self::MadtIdTwice { .. }
            | Self::MadtUidTwice { .. }
            | Self::MadtOrder { .. }
            | Self::MadtDisabled { .. } => {
                "write one enabled MADT entry per vCPU, in vCPU order, with the id CPUID states"
            }
            Self::MadtForm { .. } | Self::SratForm { .. } => {
                "use the local APIC form up to id 254, the x2APIC form from 255"
            }
            Self::CpuNotInSrat { .. } | Self::SratCpuUnknown { .. } | Self::SratCpuTwice { .. } => {
                "write one SRAT entry per vCPU with the id CPUID states"
            }
            Self::MemoryNotInSrat { .. }
            | Self::SratMemoryTwice { .. }
            | Self::SratMemoryUnknown { .. }
            | Self::MemoryNode { .. } => "write one SRAT entry per range of the memory map, with its node",
            Self::NoSlit { .. } | Self::SlitSize { .. } => "write a SLIT with one row and column per node",
            Self::SlitDiagonal { .. } | Self::SlitTooShort { .. } => "give every pair of nodes a distance of 11 to 254",
            Self::HmatNode { .. } | Self::HmatOrder { .. } => "derive the HMAT from the nodes and the distances",
            Self::SmtAcrossNodes { .. } | Self::L2AcrossNodes { .. } | Self::LlcAcrossNodes { .. } => {
                "give a node whole dies: change the node's CPUs, or the counts of sockets, dies, clusters, cores"
            }
            Self::CachesDiffer { .. } => "give every vCPU the same cache leaves",
            Self::EmptyPackage { .. } | Self::PpttEmptyPackage { .. } => "ask for as many sockets as have CPUs",
            Self::PpttCpuMissing { .. }
            | Self::PpttCpuUnknown { .. }
            | Self::PpttCpuTwice { .. }
            | Self::PpttPackage { .. }
            | Self::PpttCore { .. }
            | Self::PpttCache { .. } => "derive the PPTT and the CPUID leaves from the same topology",
            Self::DomainsNotNested { .. } => "let nodes hold whole dies, dies whole clusters, clusters whole cores",
        }
    }
}
