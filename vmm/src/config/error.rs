// SPDX-License-Identifier: Apache-2.0
//! Why a configuration, though well-formed, is no machine.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use probe::command_line::CommandError;
use topology::guest::TopologyError;
use topology::id::{NodeId, VcpuIndex};

use super::{ByteSize, EventThresholds, HugePages, MechanismChoice, PauseMode, ValueError};
use crate::report::ReportError;

/// Why a configuration cannot be made into a machine. Nothing was started and nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// CPUs, nodes or distances do not make a machine.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Memory that does not come in whole pages.
    #[error("memory {bytes}: is not a whole number of {page}-byte pages; the nearest below is {below}")]
    MemoryNotPages {
        /// What was asked for, in bytes.
        bytes: u64,
        /// Size of a page in bytes.
        page: u64,
        /// The whole pages in it.
        below: ByteSize,
    },
    /// Memory of a node that does not come in whole huge pages.
    #[error(
        "--hugepages {pages}: node {node} has {memory} of memory, which is no whole number of such pages; change --memory or memory="
    )]
    NotWholeHugePages {
        /// The pages.
        pages: HugePages,
        /// The node.
        node: NodeId,
        /// Its memory.
        memory: ByteSize,
    },
    /// More memory than an x86 machine can have.
    #[error("memory {memory}: is more than x86 can address ({most}); ask for less")]
    TooMuchMemory {
        /// What was asked for.
        memory: ByteSize,
        /// The most there can be.
        most: ByteSize,
    },
    /// `--memory` and the nodes disagree.
    #[error("memory {memory}: the nodes have {nodes} together; make the two equal or leave --memory out")]
    MemoryIsNotTheSum {
        /// What was asked for.
        memory: ByteSize,
        /// The sum over the nodes.
        nodes: ByteSize,
    },
    /// Memory said for some nodes and not for others.
    #[error("numa: node {node} says no memory and others do; give memory= for each node, or for none to split evenly")]
    NodeMemoryMissing {
        /// The first node without.
        node: usize,
    },
    /// A preference for several host nodes.
    #[error("numa: node {node} prefers the host nodes {host_nodes}; name one, or use policy=bind or policy=interleave")]
    PreferredIsOne {
        /// The node, by its place.
        node: usize,
        /// The host nodes as a list.
        host_nodes: String,
    },
    /// A number of equal nodes beside another `--numa`.
    #[error("numa {nodes}: a number of equal nodes stands alone; drop it, or the other --numa")]
    SplitIsNotAlone {
        /// The number.
        nodes: u32,
    },
    /// A key that only means something with, or without, a kernel.
    #[error("{flag} {value:?}: {why}; {remedy}")]
    KernelMismatch {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it does not go with.
        why: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// What the probe guest is told to do, and does not understand.
    #[error("--probe {line:?}: {source}{}", .nearest.map_or_else(String::new, |word| format!("; did you mean `{word}`?")))]
    Probe {
        /// As it was written.
        line: String,
        /// What is wrong.
        source: CommandError,
        /// The known word that is nearest.
        nearest: Option<&'static str>,
    },
    /// Paravirtual features and exits that KVM does not let go together.
    #[error(
        "--pv {pv} with --disable-exits {quiet}: pv-unhalt needs HLT exits, for a halted vCPU that never exits cannot be \
         kicked awake; leave pv-unhalt out (--pv all,-pv-unhalt) or hlt"
    )]
    UnhaltWithoutHaltExits {
        /// As it was asked for.
        pv: String,
        /// As it was asked for.
        quiet: String,
    },
    /// A character that a command line cannot carry.
    #[error("{flag} {value:?}: holds the control character {character:?}; remove it")]
    ControlCharacter {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// The first such character.
        character: char,
    },
    /// A file that cannot be opened.
    #[error("{flag} {}: cannot open it: {source}; give the path of a readable file", .path.display())]
    Unreadable {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory, device, pipe or socket.
    #[error("{flag} {}: is {kind}, not a regular file; give the path of a file", .path.display())]
    NotAFile {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// A file without content.
    #[error("{flag} {}: is empty; was it copied or built to its end?", .path.display())]
    EmptyFile {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
    },
    /// A file to be written that another flag names too.
    #[error("{flag} {}: {other} names the same file, which would be overwritten; give another path", .path.display())]
    SharedFile {
        /// The flag whose file is written.
        flag: &'static str,
        /// Its path.
        path: PathBuf,
        /// The other flag.
        other: &'static str,
    },
    /// A value that is out of its range.
    #[error("{flag}: {source}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        source: ValueError,
    },
    /// A log of decisions, and nobody decides.
    #[error(
        "--decision-log: no decisions are made with --pause {mode} --pause-mechanism {mechanism}; \
         use --pause act or observe, and --pause-mechanism auto"
    )]
    NothingToLog {
        /// The mode.
        mode: PauseMode,
        /// The mechanism.
        mechanism: MechanismChoice,
    },
    /// A vCPU that the machine does not have.
    #[error("{flag} names vCPU {vcpu}, the machine has {vcpus}; name vCPUs from 0 to {}", .vcpus.saturating_sub(1))]
    NoSuchVcpu {
        /// The flag.
        flag: &'static str,
        /// The vCPU.
        vcpu: VcpuIndex,
        /// How many there are.
        vcpus: u32,
    },
    /// TCP without a token.
    #[error("--api-listen {address}: TCP is only offered with a token; add --api-token-file FILE, or use --api-sock")]
    ApiWithoutToken {
        /// The address.
        address: SocketAddr,
    },
    /// A token, and nothing that asks for it.
    #[error("--api-token-file {}: only TCP asks for a token; add --api-listen 127.0.0.1:PORT, or drop it", .path.display())]
    ApiTokenWithoutTcp {
        /// The file.
        path: PathBuf,
    },
    /// TCP that other machines can reach.
    #[error(
        "--api-listen {address}: is no address of this machine alone, and the token would cross the network as plain text; \
         use 127.0.0.1 or [::1] and a tunnel"
    )]
    ApiNotLocal {
        /// The address.
        address: SocketAddr,
    },
    /// Nobody could ask for a machine.
    #[error("--api-only: nobody could ask for a machine; add --api-sock PATH, or --api-listen with --api-token-file")]
    ApiOnlyNowhere,
    /// Nobody would be told.
    #[error(
        "--api-thresholds {thresholds}: nobody would be told; add --api-sock PATH, or --api-listen with --api-token-file"
    )]
    ApiThresholdsNowhere {
        /// As given.
        thresholds: EventThresholds,
    },
    /// A machine that would not be made.
    #[error(
        "--api-only: the machine is described through the API alone; drop the flags and keys that describe one here"
    )]
    ApiOnlyWithMachine,
    /// A file that shall be written and cannot be.
    #[error(transparent)]
    Output(#[from] ReportError),
}
