// SPDX-License-Identifier: Apache-2.0
//! RSDP, XSDT and FADT: the way to the other tables, and the power registers.
//!
//! As `acpi_tb_parse_root_table` and `acpi_tb_parse_fadt` (drivers/acpi/acpica/tbutils.c, tbfadt.c; Linux 6.12) go it.

use super::error::DecodeError;
use super::table::{self, Table};
use super::{MAX_TABLES, Memory};
use crate::acpi::sdt::{HEADER_LEN, sum};

/// FADT flag: there is a reset register (ACPI 6.3, table 5-34, bit 10).
const RESET_REG_SUP: u32 = 1 << 10;
/// FADT flag: hardware-reduced (bit 20).
const HW_REDUCED_ACPI: u32 = 1 << 20;

/// A register by its generic address structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Address space: 0 memory, 1 I/O ports.
    pub space: u8,
    /// Width in bits.
    pub width_bits: u8,
    /// Address or port.
    pub address: u64,
}

impl Register {
    /// The I/O port of a byte-wide register; none when it is anything else or is not there.
    #[must_use]
    pub fn byte_port(&self) -> Option<u16> {
        let port = u16::try_from(self.address).ok().filter(|port| *port != 0);
        port.filter(|_| self.space == 1 && self.width_bits == 8)
    }
}

/// What the FADT says of a hardware-reduced machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fadt {
    /// Major and minor revision.
    pub revision: (u8, u8),
    /// Guest-physical address of the DSDT.
    pub dsdt_gpa: u64,
    /// Whether the machine is hardware-reduced.
    pub hardware_reduced: bool,
    /// The reset register, if there is one, and what to write.
    pub reset: Option<(Register, u8)>,
    /// Sleep control register.
    pub sleep_control: Register,
    /// Sleep status register.
    pub sleep_status: Register,
    /// Boot architecture flags of a PC (table 5-35).
    pub boot_architecture: u16,
}

/// The tables that an XSDT names.
pub(super) struct Xsdt {
    tables: Vec<([u8; 4], u64)>,
}

impl Xsdt {
    pub(super) fn optional(&self, signature: &[u8; 4]) -> Option<u64> {
        self.tables.iter().find(|(found, _)| found == signature).map(|(_, gpa)| *gpa)
    }

    pub(super) fn required(&self, signature: &[u8; 4]) -> Result<u64, DecodeError> {
        let missing = || DecodeError::Missing { table: signature.escape_ascii().to_string() };
        self.optional(signature).ok_or_else(missing)
    }
}

/// The address of the XSDT (ACPI 6.3, table 5-28).
pub(super) fn rsdp(memory: Memory<'_>, gpa: u64) -> Result<u64, DecodeError> {
    let bytes = table::bytes(memory, gpa, 36, "RSDP")?;
    if !bytes.starts_with(b"RSD PTR ") {
        return Err(DecodeError::NoRsdp { gpa });
    }
    match sum(&bytes[..20]) {
        0 => {}
        sum => return Err(DecodeError::RsdpChecksum { sum }),
    }
    if bytes[15] < 2 {
        return Err(DecodeError::RsdpRevision { revision: bytes[15] });
    }
    let length = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
    if !(36..=4096).contains(&length) {
        return Err(DecodeError::RsdpLength { length });
    }
    let whole = table::bytes(memory, gpa, length, "RSDP")?;
    match sum(&whole) {
        0 => {}
        sum => return Err(DecodeError::RsdpExtendedChecksum { sum }),
    }
    let mut address = [0; 8];
    address.copy_from_slice(&bytes[24..32]);
    Ok(u64::from_le_bytes(address))
}

/// The tables by signature.
pub(super) fn xsdt(memory: Memory<'_>, gpa: u64) -> Result<Xsdt, DecodeError> {
    let xsdt = table::load(memory, gpa, Some(b"XSDT"))?;
    let pointers = xsdt.rest(HEADER_LEN);
    let (pointers, left) = pointers.as_chunks::<8>();
    if !left.is_empty() {
        return Err(DecodeError::XsdtLength { length: xsdt.len_u32() });
    }
    if pointers.len() > MAX_TABLES {
        return Err(DecodeError::TooManyTables { count: pointers.len() });
    }
    let mut tables: Vec<([u8; 4], u64)> = Vec::new();
    for pointer in pointers {
        let gpa = u64::from_le_bytes(*pointer);
        let header = table::bytes(memory, gpa, 36, "table")?;
        let signature = [header[0], header[1], header[2], header[3]];
        // There may be any number of SSDTs and of what is not known here.
        if [b"FACP", b"APIC", b"SRAT", b"SLIT", b"PPTT", b"HMAT"].contains(&&signature)
            && tables.iter().any(|(known, _)| *known == signature)
        {
            return Err(DecodeError::Duplicate { table: signature.escape_ascii().to_string() });
        }
        tables.push((signature, gpa));
    }
    Ok(Xsdt { tables })
}

/// The FADT (ACPI 6.3, table 5-33).
pub(super) fn fadt(table: &Table) -> Result<Fadt, DecodeError> {
    let flags = table.u32(112)?;
    let reset = (register(table, 116)?, table.u8(128)?);
    let (dsdt, x_dsdt) = (table.u32(40)?, table.u64(140)?);
    Ok(Fadt {
        revision: (table.revision()?, table.u8(131)? & 0xF),
        // The 64-bit address counts when it is there.
        dsdt_gpa: if x_dsdt == 0 { u64::from(dsdt) } else { x_dsdt },
        hardware_reduced: flags & HW_REDUCED_ACPI != 0,
        reset: (flags & RESET_REG_SUP != 0).then_some(reset),
        sleep_control: register(table, 244)?,
        sleep_status: register(table, 256)?,
        boot_architecture: table.u16(109)?,
    })
}

fn register(table: &Table, offset: usize) -> Result<Register, DecodeError> {
    Ok(Register { space: table.u8(offset)?, width_bits: table.u8(offset + 1)?, address: table.u64(offset + 4)? })
}
