// SPDX-License-Identifier: Apache-2.0
//! The way back: tables read from guest memory as Linux walks them, whoever wrote them and whatever they hold.
//!
//! [`read`] goes RSDP → XSDT → tables and FADT → DSDT, through a closure over guest memory; a parser per table takes it
//! from there. Signature, length, revision and checksum come first, as in drivers/acpi/acpica/tbxfroot.c, tbxface.c and
//! tbutils.c (Linux 6.12). Invariants: no input makes it panic, loop or allocate more than the table's length allows;
//! every fault has its own error.

mod error;
mod hmat;
mod madt;
mod pptt;
mod root;
mod slit;
mod srat;
mod table;

pub use error::DecodeError;
pub use hmat::{Hmat, Locality, MemoryDomain, Quantity};
pub use madt::{Madt, MadtCpu, MadtIoApic, MadtNmi, NmiTarget};
pub use pptt::{Pptt, PpttCache, PpttNode};
pub use root::{Fadt, Register};
pub use slit::Slit;
pub use srat::{Srat, SratCpu, SratMemory};

use super::AcpiTables;

/// The longest table that is read, in bytes: several times what the largest machine needs.
pub const MAX_TABLE_BYTES: u32 = 1 << 20;
/// The most tables that an XSDT may name; Linux' own static list has 128 places (`ACPI_MAX_TABLES`).
pub const MAX_TABLES: usize = 128;

/// Guest memory: fills the buffer from a guest-physical address, or says that it cannot.
pub type Memory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// In which form a table names a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApicForm {
    /// An 8-bit id: processor local APIC.
    XApic,
    /// A 32-bit id: processor local x2APIC.
    X2Apic,
}

/// What the tables of a guest say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Power registers and flags.
    pub fadt: Fadt,
    /// Length of the DSDT in bytes; its AML is not interpreted.
    pub dsdt_len_bytes: u32,
    /// CPUs and interrupt controllers.
    pub madt: Madt,
    /// Proximity domains; a machine may go without.
    pub srat: Option<Srat>,
    /// Distances; a machine may go without.
    pub slit: Option<Slit>,
    /// Processor tree; a machine may go without.
    pub pptt: Option<Pptt>,
    /// Latencies and bandwidths; a machine may go without.
    pub hmat: Option<Hmat>,
}

/// Reads all tables, starting at the RSDP that the boot information names.
///
/// # Errors
/// [`DecodeError`], the first fault on the way.
pub fn read(memory: Memory<'_>, rsdp_gpa: u64) -> Result<Decoded, DecodeError> {
    let xsdt = root::xsdt(memory, root::rsdp(memory, rsdp_gpa)?)?;
    let fadt_gpa = xsdt.required(b"FACP")?;
    let fadt = root::fadt(&table::load(memory, fadt_gpa, Some(b"FACP"))?)?;
    let dsdt = table::load(memory, fadt.dsdt_gpa, Some(b"DSDT"))?;
    let load = |gpa, signature| table::load(memory, gpa, Some(signature));
    Ok(Decoded {
        fadt,
        dsdt_len_bytes: dsdt.len_u32(),
        madt: madt::parse(&load(xsdt.required(b"APIC")?, b"APIC")?)?,
        srat: xsdt.optional(b"SRAT").map(|gpa| srat::parse(&load(gpa, b"SRAT")?)).transpose()?,
        slit: xsdt.optional(b"SLIT").map(|gpa| slit::parse(&load(gpa, b"SLIT")?)).transpose()?,
        pptt: xsdt.optional(b"PPTT").map(|gpa| pptt::parse(&load(gpa, b"PPTT")?)).transpose()?,
        hmat: xsdt.optional(b"HMAT").map(|gpa| hmat::parse(&load(gpa, b"HMAT")?)).transpose()?,
    })
}

/// Reads tables back before they are in any guest's memory.
///
/// # Errors
/// As [`read`].
pub fn read_built(tables: &AcpiTables) -> Result<Decoded, DecodeError> {
    let memory = |gpa: u64, buffer: &mut [u8]| {
        let found = tables.pieces().find_map(|(start, bytes)| {
            let from = usize::try_from(gpa.checked_sub(start)?).ok()?;
            bytes.get(from..)?.get(..buffer.len())
        });
        found.is_some_and(|bytes| {
            buffer.copy_from_slice(bytes);
            true
        })
    };
    read(&memory, tables.rsdp_gpa)
}

#[cfg(test)]
mod tests;
