// SPDX-License-Identifier: Apache-2.0
//! The last look at what the guest will be told of its shape, before it is told: the topology doctor on the very leaves
//! and tables that were made.

use topology::acpi::AcpiTables;
use topology::cpuid::{self, CpuidEntry};
use topology::doctor::{self, DoctorError, Report};
use topology::guest::GuestTopology;
use topology::memory_map::MemoryMap;

/// The guest would be told something inconsistent.
#[derive(Debug, thiserror::Error)]
pub enum CheckupError {
    /// The bytes cannot be decoded at all.
    #[error("the topology doctor cannot read what was made for the guest: {0}; this is a fault of the monitor")]
    Unreadable(#[from] DoctorError),
    /// It found something.
    #[error("the topology doctor refuses what was made for the guest: {}", list(.0))]
    Findings(Box<Report>),
}

fn list(report: &Report) -> String {
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    findings.join("; ")
}

/// Examines the leaves of every vCPU and the tables.
///
/// # Errors
/// [`CheckupError`]: the guest is not to be started.
pub fn examine(
    host: &[CpuidEntry],
    topology: &GuestTopology,
    map: &MemoryMap,
    tables: &AcpiTables,
) -> Result<Report, CheckupError> {
    // Only what speaks of shape, so that a list for each of many vCPUs stays small.
    let host: Vec<CpuidEntry> = host.iter().copied().filter(speaks_of_shape).collect();
    let leaves: Vec<_> = topology.vcpus().map(|vcpu| cpuid::specialise(&host, topology, vcpu)).collect();
    let report = doctor::examine(&leaves, tables, map)?;
    if report.is_healthy() { Ok(report) } else { Err(CheckupError::Findings(Box::new(report))) }
}

fn speaks_of_shape(entry: &CpuidEntry) -> bool {
    // The maximum leaves, the leaves that are rewritten, and the vendor; leaf 4 and its kin are written anew.
    matches!(entry.function, 0 | 1 | 0x8000_0000 | 0x8000_0001 | 0x8000_0006 | 0x8000_0008)
}
