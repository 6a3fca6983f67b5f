// SPDX-License-Identifier: Apache-2.0
//! What the doctor remarks on and lets pass: right, and yet a user may wonder about it in the guest.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::NodeId;

/// Something that is right and may yet surprise.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "remark", rename_all = "snake_case")]
pub enum Remark {
    /// Distances that differ by direction.
    #[error(
        "distance {there} from node {from} to {to}, {back} back: Linux allows it and says `Node-distance not \
         symmetric` with sched_verbose"
    )]
    Asymmetric {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// That way.
        there: u8,
        /// The other way.
        back: u8,
    },
    /// Clusters on AMD.
    #[error(
        "cores share L2 caches, but Linux does not know their id on AMD (match_l2c falls back to SMT): no CLS domain"
    )]
    ClustersUnseen,
    /// More node ids than dies on AMD.
    #[error(
        "package {package} has {dies} dies, and CPUID.8000001EH:ECX[10:8] can say 1, 2, 4 or 8 nodes: it says the next \
         higher; give the package 1, 2, 4 or 8 dies to have no gap between node ids"
    )]
    NodeIdsWithGaps {
        /// The first such package.
        package: u32,
        /// Its dies.
        dies: u32,
    },
    /// A node smaller than Linux 6.1 takes.
    #[error(
        "node {node} has {bytes} bytes: Linux 6.1 leaves out a node of less than 4 MiB (NODE_MIN_SIZE); later \
         kernels take it"
    )]
    SmallNode {
        /// The node.
        node: NodeId,
        /// Its memory in bytes.
        bytes: u64,
    },
    /// A package on several nodes.
    #[error("package {package} is on several nodes: Linux builds no PKG domain anywhere (x86_has_numa_in_package)")]
    NumaInPackage {
        /// The package.
        package: u32,
    },
}
