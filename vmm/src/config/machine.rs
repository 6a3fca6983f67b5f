// SPDX-License-Identifier: Apache-2.0
//! A machine that can be built: validated and plain.
//!
//! The invariant: a [`Machine`] comes from [`super::MachineConfig::resolve`] alone, so that whatever can be known to be
//! wrong before KVM is opened has been refused. It holds no handles, and building it leaves no trace on the host.

use std::path::PathBuf;

use policy::placement::Rules;
use topology::cpu_set::CpuSet;
use topology::guest::GuestTopology;
use topology::id::HostNode;

use super::{HugePages, MemoryPolicy, OfferPlan, PausePlan, PlacementConfig, SerialConfig};
use crate::report::ReportTarget;

/// What a run needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs, memory, nodes and distances.
    pub topology: GuestTopology,
    /// What runs on it.
    pub boot: Boot,
    /// Where its serial port leads.
    pub serial: SerialConfig,
    /// Where the report goes at the end.
    pub report: Option<ReportTarget>,
    /// What is done about pause loops.
    pub pause: PausePlan,
    /// What the guest is told of its host, and what KVM may do.
    pub offer: OfferPlan,
    /// Where vCPU threads run.
    pub placement: PlacementConfig,
    /// By which rules.
    pub rules: Rules,
    /// Pages of guest memory; `None` where the host decides.
    pub huge_pages: Option<HugePages>,
    /// Whether vCPU threads share cores with each other only.
    pub core_scheduling: bool,
    /// What is wished for each node, in the order of the nodes.
    pub node_wishes: Vec<NodeWish>,
}

/// Where the memory of a guest node shall be on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWish {
    /// On these host nodes; empty where nothing was said.
    pub host_nodes: CpuSet<HostNode>,
    /// Tied to them like this; `None` where nothing was said.
    pub policy: Option<MemoryPolicy>,
}

/// What runs on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// The probe guest that the monitor carries.
    Probe {
        /// Its command line: a workload and its parameters, without control characters.
        workload: String,
    },
    /// A kernel from a file.
    Kernel {
        /// The image: a file that is not empty and could be opened. What it holds is for the loader to say.
        image: PathBuf,
        /// The initial RAM disk, likewise.
        initrd: Option<PathBuf>,
        /// The command line, without NUL. How long it may be depends on the image.
        command_line: String,
    },
}
