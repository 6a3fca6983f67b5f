// SPDX-License-Identifier: Apache-2.0
//! `vmm topology`: the shape a machine would have, and what the doctor says of it. Needs no KVM.

use std::fmt::Write as _;

use serde::Serialize;
use topology::cpuid::CpuidEntry;
use topology::doctor;
use topology::guest::GuestTopology;
use topology::memory_map::MemoryMap;
use topology::render;
use topology::report::TopologyReport;

use crate::config::cli::TopologyFormat;
use crate::kvm::cpuid;
use crate::kvm::system::System;
use crate::vm::assembly;
use crate::vm::checkup::{self, CheckupError};
use crate::vm::error::AssemblyError;
use crate::vm::tables::{self, TablesError};

/// The topology cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The memory does not fit into physical addresses.
    #[error(transparent)]
    Memory(#[from] AssemblyError),
    /// The tables.
    #[error(transparent)]
    Tables(#[from] TablesError),
    /// The doctor.
    #[error(transparent)]
    Checkup(#[from] CheckupError),
    /// JSON.
    #[error("the topology cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The JSON document.
#[derive(Serialize)]
struct Document {
    topology: TopologyReport,
    doctor: doctor::Report,
}

/// The topology in the format that was asked for.
///
/// # Errors
/// [`TopologyError`].
pub(super) fn render(machine: GuestTopology, format: TopologyFormat) -> Result<String, TopologyError> {
    let host = host_cpuid();
    let (machine, map) = assembly::shape(machine, &host)?;
    let topology = TopologyReport::new(&machine, &map);
    Ok(match format {
        TopologyFormat::Tree => render::tree(&topology),
        TopologyFormat::Table => {
            let mut text = render::table(&topology);
            let _ = write!(text, "\n{}", diagnose(&host, &machine, &map)?);
            text
        }
        TopologyFormat::Json => {
            let doctor = diagnose(&host, &machine, &map)?;
            serde_json::to_string_pretty(&Document { topology, doctor })? + "\n"
        }
    })
}

fn diagnose(host: &[CpuidEntry], machine: &GuestTopology, map: &MemoryMap) -> Result<doctor::Report, TopologyError> {
    let tables = tables::build(machine, map)?;
    Ok(checkup::examine(host, machine, map, &tables.acpi)?)
}

/// What a guest would be shown here; without KVM what this processor itself shows, which names the vendor and caches.
fn host_cpuid() -> Vec<CpuidEntry> {
    System::open().ok().and_then(|system| system.supported_cpuid().ok()).unwrap_or_else(cpuid::of_this_processor)
}
