// SPDX-License-Identifier: Apache-2.0
//! The numbers by which CPUs and nodes are known, each a type of its own.
//!
//! A vCPU index is not an APIC id and neither is a host CPU number: confusing them compiles in C and mis-steers a
//! guest. One function maps an index to an APIC id ([`crate::apic`]); nothing maps back but a search.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into a table that has one entry per id.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Index of a guest CPU, 0-based and dense: what `--cpus` counts and what threads are named after.
    ///
    /// Not an APIC id: with a core count that is not a power of two the two differ.
    VcpuIndex
}

id! {
    /// (x2)APIC id of a guest CPU: what interrupts are addressed to, and what MADT, SRAT and CPUID leaf 0xB agree on.
    ///
    /// Not a vCPU index. Ids above 254 exist only in x2APIC mode (Intel SDM vol. 3A, rev. 083, section 11.12).
    ApicId
}

id! {
    /// Number of a CPU of the host, as in `/sys/devices/system/cpu/cpuN`. May have holes.
    HostCpu
}

id! {
    /// Number of a guest NUMA node: the proximity domain of SRAT, SLIT and HMAT.
    NodeId
}

id! {
    /// Number of a NUMA node of the host, as in `/sys/devices/system/node/nodeN`. May have holes.
    HostNode
}
