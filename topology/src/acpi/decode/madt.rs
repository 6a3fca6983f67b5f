// SPDX-License-Identifier: Apache-2.0
//! MADT back to CPUs and interrupt controllers (ACPI 6.3 section 5.2.12).
//!
//! As `acpi_parse_lapic` and `acpi_parse_x2apic` read it (arch/x86/kernel/acpi/boot.c; Linux 6.12). Entries of other
//! kinds are passed over, as Linux does.

use super::ApicForm;
use super::error::DecodeError;
use super::table::{Entry, EntryHeader, Table};
use crate::acpi::madt::ENABLED;
use crate::id::ApicId;

/// A CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadtCpu {
    /// ACPI processor UID.
    pub uid: u32,
    /// APIC id.
    pub apic_id: ApicId,
    /// The form of the entry.
    pub form: ApicForm,
    /// Whether the CPU can be used.
    pub enabled: bool,
}

/// An I/O APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadtIoApic {
    /// Its id.
    pub id: u8,
    /// Guest-physical address of its registers.
    pub gpa: u32,
    /// First global system interrupt.
    pub gsi_base: u32,
}

/// Whose LINT input a non-maskable interrupt is wired to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NmiTarget {
    /// All CPUs of a form.
    All(ApicForm),
    /// The CPU of a UID.
    Uid(u32),
}

/// A non-maskable interrupt of the local APICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadtNmi {
    /// Whose.
    pub target: NmiTarget,
    /// Which LINT input.
    pub lint: u8,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Madt {
    /// Its revision.
    pub revision: u8,
    /// Guest-physical address of the local APICs.
    pub local_apic_gpa: u32,
    /// Whether there is a pair of 8259s (flag PCAT_COMPAT).
    pub has_8259: bool,
    /// CPUs in the order of the table, which is Linux' order of CPU numbers.
    pub cpus: Vec<MadtCpu>,
    /// I/O APICs.
    pub io_apics: Vec<MadtIoApic>,
    /// NMI wiring.
    pub nmis: Vec<MadtNmi>,
    /// How many interrupt source overrides there are.
    pub source_overrides: usize,
}

pub(super) fn parse(table: &Table) -> Result<Madt, DecodeError> {
    let mut madt = Madt {
        revision: table.revision()?,
        local_apic_gpa: table.u32(36)?,
        has_8259: table.u32(40)? & 1 != 0,
        cpus: Vec::new(),
        io_apics: Vec::new(),
        nmis: Vec::new(),
        source_overrides: 0,
    };
    for entry in table.entries(8, EntryHeader::Bytes)? {
        add(&mut madt, &entry)?;
    }
    Ok(madt)
}

fn add(madt: &mut Madt, entry: &Entry<'_>) -> Result<(), DecodeError> {
    let nmi = |target, lint| MadtNmi { target, lint };
    match entry.kind {
        0 => madt.cpus.extend(local_apic(entry)?),
        1 => {
            entry.at_least(12)?;
            madt.io_apics.push(MadtIoApic { id: entry.u8(2)?, gpa: entry.u32(4)?, gsi_base: entry.u32(8)? });
        }
        2 => madt.source_overrides += 1,
        4 => {
            entry.at_least(6)?;
            let target = match entry.u8(2)? {
                0xFF => NmiTarget::All(ApicForm::XApic),
                uid => NmiTarget::Uid(u32::from(uid)),
            };
            madt.nmis.push(nmi(target, entry.u8(5)?));
        }
        9 => madt.cpus.extend(local_x2apic(entry)?),
        10 => {
            entry.at_least(12)?;
            let target = match entry.u32(4)? {
                u32::MAX => NmiTarget::All(ApicForm::X2Apic),
                uid => NmiTarget::Uid(uid),
            };
            madt.nmis.push(nmi(target, entry.u8(8)?));
        }
        _ => {}
    }
    Ok(())
}

/// Id 255 is no CPU: "Ignore invalid ID" (`acpi_parse_lapic`).
fn local_apic(entry: &Entry<'_>) -> Result<Option<MadtCpu>, DecodeError> {
    entry.at_least(8)?;
    let id = entry.u8(3)?;
    Ok((id != 0xFF).then_some(MadtCpu {
        uid: u32::from(entry.u8(2)?),
        apic_id: ApicId(u32::from(id)),
        form: ApicForm::XApic,
        enabled: entry.u32(4)? & ENABLED != 0,
    }))
}

fn local_x2apic(entry: &Entry<'_>) -> Result<Option<MadtCpu>, DecodeError> {
    entry.at_least(16)?;
    let id = entry.u32(4)?;
    Ok((id != u32::MAX).then_some(MadtCpu {
        uid: entry.u32(12)?,
        apic_id: ApicId(id),
        form: ApicForm::X2Apic,
        enabled: entry.u32(8)? & ENABLED != 0,
    }))
}
