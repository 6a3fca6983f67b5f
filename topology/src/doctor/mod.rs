// SPDX-License-Identifier: Apache-2.0
//! The doctor: what a Linux guest will make of the bytes we are about to give it, and what is wrong with them.
//!
//! CPUID lists and ACPI tables are decoded as Linux decodes them ([`crate::cpuid::decode`], [`crate::acpi::decode`])
//! and held against one another and against the memory map; then the scheduler domains are built as Linux builds them.
//! What is a [`Finding`] is refused before boot; a [`Remark`] is something that a user may wonder about in the guest.
//! Kernel files are those of Linux 6.12; where 6.1 differs it says so. Invariant: a machine that
//! [`crate::guest::GuestTopology`] accepts, written by this crate, has no finding.

mod caches;
mod cpus;
mod distances;
mod domains;
mod finding;
mod memory;
mod power;
mod remark;
mod render;
mod report;
mod tree;

use thiserror::Error;

pub use domains::{Domain, Level};
pub use finding::Finding;
pub use remark::Remark;
pub use report::{CacheReport, CpuReport, NodeReport, Report};

use crate::acpi::AcpiTables;
use crate::acpi::decode::{self, Decoded};
use crate::cpuid::{self, CpuidEntry, DecodedTopology};
use crate::memory_map::{MemoryMap, RamRange};

/// Everything that the doctor looks at.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The machine as its CPUs see it.
    pub seen: &'a DecodedTopology,
    /// The machine as its tables describe it.
    pub acpi: &'a Decoded,
    /// The memory that there is.
    pub ram: &'a [RamRange],
}

/// Why there is nothing to diagnose: the bytes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DoctorError {
    /// The CPUID lists describe no machine.
    #[error("CPUID: {0}")]
    Cpuid(#[from] cpuid::DecodeError),
    /// The ACPI tables cannot be read.
    #[error("ACPI: {0}")]
    Acpi(#[from] decode::DecodeError),
}

/// Examines what was made for a guest: a CPUID list for every vCPU in order, the tables and the memory map.
///
/// # Errors
/// [`DoctorError`] when the bytes cannot be decoded at all.
pub fn examine(cpuid: &[Vec<CpuidEntry>], tables: &AcpiTables, map: &MemoryMap) -> Result<Report, DoctorError> {
    let seen = cpuid::decode(cpuid)?;
    let acpi = decode::read_built(tables)?;
    Ok(diagnose(&Evidence { seen: &seen, acpi: &acpi, ram: map.ram() }))
}

/// Examines what was decoded already.
#[must_use]
pub fn diagnose(evidence: &Evidence<'_>) -> Report {
    let nodes = cpus::nodes(evidence);
    let mut findings = Vec::new();
    power::check(evidence.acpi, &mut findings);
    cpus::check(evidence, &mut findings);
    memory::check(evidence, &mut findings);
    distances::check(evidence, &mut findings);
    tree::check(evidence, &mut findings);
    let masks = caches::masks(evidence.seen, &nodes, &mut findings);
    let distance = distances::linux(evidence.acpi);
    let domains = domains::build(evidence.seen, &masks, (&nodes, &distance), &mut findings);
    let remarks = report::remarks(evidence, &nodes);
    report::report(evidence, &nodes, domains, (findings, remarks))
}

#[cfg(test)]
mod tests;
