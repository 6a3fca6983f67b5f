// SPDX-License-Identifier: Apache-2.0
//! How CPUs are grouped, and where one of them sits: what APIC ids, leaves and tables are made of.

use serde::{Deserialize, Serialize};

use crate::cache::CacheScope;

/// The counts of a machine, each per one of the level above, the largest where packages differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Packages in the machine.
    pub packages: u32,
    /// Dies in a package.
    pub dies: u32,
    /// Clusters in a die.
    pub clusters: u32,
    /// Cores in a cluster of the largest package.
    pub cores: u32,
    /// Threads in a core.
    pub threads: u32,
}

impl Shape {
    /// CPUs in the largest package.
    #[must_use]
    pub const fn package_cpus(&self) -> u32 {
        self.dies * self.die_cpus()
    }

    /// CPUs in a die of the largest package.
    #[must_use]
    pub const fn die_cpus(&self) -> u32 {
        self.clusters * self.cluster_cpus()
    }

    /// CPUs in a cluster of the largest package.
    #[must_use]
    pub const fn cluster_cpus(&self) -> u32 {
        self.cores * self.threads
    }
}

/// Where a CPU sits, each number 0-based within the level above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Package in the machine.
    pub package: u32,
    /// Die in the package.
    pub die: u32,
    /// Cluster in the die.
    pub cluster: u32,
    /// Core in the cluster.
    pub core: u32,
    /// Thread in the core.
    pub thread: u32,
}

impl Position {
    /// The first position of the core, cluster, die or package that this one is in.
    #[must_use]
    pub const fn first_of(self, scope: CacheScope) -> Self {
        match scope {
            CacheScope::Core => Self { thread: 0, ..self },
            CacheScope::Cluster => Self { thread: 0, core: 0, ..self },
            CacheScope::Die => Self { thread: 0, core: 0, cluster: 0, ..self },
        }
    }
}
