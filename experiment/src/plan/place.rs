// SPDX-License-Identifier: Apache-2.0
//! Where the cells of a plan run.

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one that reads the plan.
    Native,
    /// One that is emulated, with hardware virtualisation and PAUSE exits (docs/lab.md).
    Lab {
        /// Its CPUs, all in one package.
        cpus: u32,
        /// Its memory, in MiB.
        memory_mib: u32,
        /// Its time passes with the instructions that it executes: runs of the same are the same, however busy the host is.
        counted_time: bool,
    },
}
