// SPDX-License-Identifier: Apache-2.0
//! SRAT back to proximity domains (ACPI 6.3 section 5.2.16).
//!
//! As arch/x86/mm/srat.c and drivers/acpi/numa/srat.c read it (Linux 6.12): entries that are not enabled do not count,
//! and before revision 2 a domain has eight bits.

use super::ApicForm;
use super::error::DecodeError;
use super::table::{Entry, EntryHeader, Table};
use crate::acpi::madt::ENABLED;
use crate::id::{ApicId, NodeId};

/// A CPU and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SratCpu {
    /// APIC id.
    pub apic_id: ApicId,
    /// The form of the entry.
    pub form: ApicForm,
    /// Proximity domain.
    pub node: NodeId,
}

/// Memory and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SratMemory {
    /// First guest-physical address.
    pub start: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Proximity domain.
    pub node: NodeId,
}

/// The enabled entries of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srat {
    /// Its revision.
    pub revision: u8,
    /// CPUs in the order of the table.
    pub cpus: Vec<SratCpu>,
    /// Memory in the order of the table.
    pub memory: Vec<SratMemory>,
}

pub(super) fn parse(table: &Table) -> Result<Srat, DecodeError> {
    let mut srat = Srat { revision: table.revision()?, cpus: Vec::new(), memory: Vec::new() };
    let node = |domain: u32| NodeId(if srat.revision < 2 { domain & 0xFF } else { domain });
    for entry in table.entries(12, EntryHeader::Bytes)? {
        match entry.kind {
            0 => srat.cpus.extend(local_apic(&entry, &node)?),
            1 => srat.memory.extend(memory(&entry, &node)?),
            2 => srat.cpus.extend(local_x2apic(&entry)?),
            _ => {}
        }
    }
    Ok(srat)
}

fn local_apic(entry: &Entry<'_>, node: &dyn Fn(u32) -> NodeId) -> Result<Option<SratCpu>, DecodeError> {
    entry.at_least(16)?;
    let high = u32::from(entry.u16(9)?) | u32::from(entry.u8(11)?) << 16;
    let cpu = SratCpu {
        apic_id: ApicId(u32::from(entry.u8(3)?)),
        form: ApicForm::XApic,
        node: node(high << 8 | u32::from(entry.u8(2)?)),
    };
    Ok((entry.u32(4)? & ENABLED != 0).then_some(cpu))
}

fn local_x2apic(entry: &Entry<'_>) -> Result<Option<SratCpu>, DecodeError> {
    entry.at_least(24)?;
    let cpu = SratCpu { apic_id: ApicId(entry.u32(8)?), form: ApicForm::X2Apic, node: NodeId(entry.u32(4)?) };
    Ok((entry.u32(12)? & ENABLED != 0).then_some(cpu))
}

fn memory(entry: &Entry<'_>, node: &dyn Fn(u32) -> NodeId) -> Result<Option<SratMemory>, DecodeError> {
    entry.at_least(40)?;
    let memory = SratMemory { start: entry.u64(8)?, len_bytes: entry.u64(16)?, node: node(entry.u32(2)?) };
    Ok((entry.u32(28)? & ENABLED != 0).then_some(memory))
}
