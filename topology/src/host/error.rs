// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a description of the host: one variant per way to contradict itself.
//!
//! What is merely absent is no error but a [`super::Degradation`].

use thiserror::Error;

use super::Level;
use crate::cpu_set::CpuSetError;
use crate::id::{HostCpu, HostNode};

/// Why no host topology could be made of a capture.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostError {
    /// The text or what it expands to is larger than any machine's.
    #[error("host capture has more than {limit} {what}: capture only what resources/hosts/capture.sh captures")]
    CaptureTooLarge {
        /// The quantity that is too large.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// There is content before the first `== path` line.
    #[error("host capture line {line}: text before the first '== path' line; start comments with '#'")]
    TextBeforeSection {
        /// 1-based line number.
        line: usize,
    },
    /// A `== path` line has no path, or a `[list]` that does not parse.
    #[error(
        "host capture line {line}: header {header:?} is not '== path' with at most one '[list]' such as cpu[0-3,8]"
    )]
    BadHeader {
        /// 1-based line number.
        line: usize,
        /// The header as written, at most 120 characters of it.
        header: String,
    },
    /// The same file is described twice.
    #[error("host capture says twice what {path} contains: remove one of the two")]
    DuplicatePath {
        /// The path.
        path: String,
    },
    /// A file should hold a list of CPUs or nodes and does not.
    #[error("{path} should hold a list such as 0-3,8: {source}")]
    BadList {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: CpuSetError,
    },
    /// A file should hold a number and does not.
    #[error("{path} holds {text:?}, which is not {wanted}")]
    BadNumber {
        /// The file.
        path: String,
        /// What it holds, at most 120 characters of it.
        text: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// No file says that there is any CPU.
    #[error("no CPU is known: neither devices/system/cpu/online nor the process's affinity was captured")]
    NoCpus,
    /// A CPU number above what Linux supports on x86.
    #[error("CPU {cpu} is online, but Linux on x86 numbers its CPUs below {limit}")]
    CpuBeyondLimit {
        /// The CPU.
        cpu: HostCpu,
        /// The limit.
        limit: u32,
    },
    /// The process's affinity and cpuset leave no online CPU.
    #[error(
        "no online CPU is allowed: online {online}, affinity {affinity}, cpuset {cpuset}; widen the cpuset first, then the affinity"
    )]
    NothingAllowed {
        /// Online CPUs, as a list.
        online: String,
        /// The process's affinity, as a list, or `any`.
        affinity: String,
        /// Its cgroup's cpuset, as a list, or `any`.
        cpuset: String,
    },
    /// A CPU's own list does not name the CPU.
    #[error("CPU {cpu} is not in its own {level}, {text:?}")]
    SpanWithoutSelf {
        /// The level.
        level: Level,
        /// The CPU.
        cpu: HostCpu,
        /// Its list, at most 120 characters of it.
        text: String,
    },
    /// Two CPUs disagree about whether they share a core, cache, die or package.
    #[error("CPU {cpu} counts CPU {other} to its {level}, but not the other way round")]
    Asymmetric {
        /// The level.
        level: Level,
        /// The CPU that names the other, or has it in its group.
        cpu: HostCpu,
        /// The CPU that disagrees.
        other: HostCpu,
    },
    /// A group lies in two groups of the level above it.
    #[error("CPUs {cpu} and {other} share a {inner} but not a {outer}")]
    NotNested {
        /// The smaller level.
        inner: Level,
        /// The level that should hold it whole.
        outer: Level,
        /// One CPU of the group.
        cpu: HostCpu,
        /// Another CPU of it, in another outer group.
        other: HostCpu,
    },
    /// Two nodes list the same CPU.
    #[error("CPU {cpu} is listed by node {node} and by node {other}")]
    CpuInTwoNodes {
        /// The CPU.
        cpu: HostCpu,
        /// The first node.
        node: HostNode,
        /// The second.
        other: HostNode,
    },
    /// A node's distance file has not one entry per node.
    #[error("node {node} has {found} distances, but there are {nodes} nodes")]
    DistanceCount {
        /// The node.
        node: HostNode,
        /// Entries found.
        found: usize,
        /// Nodes of the host.
        nodes: usize,
    },
    /// A distance below 10, or a distance to itself that is not 10 (ACPI 6.5, section 5.2.17).
    #[error("node {node} has distance {distance} to node {other}: 10 to itself and at least 10 to others is allowed")]
    BadDistance {
        /// The node.
        node: HostNode,
        /// The other node.
        other: HostNode,
        /// What the file says.
        distance: u8,
    },
}
