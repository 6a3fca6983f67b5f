// SPDX-License-Identifier: Apache-2.0
//! The ACPI tables, found and walked as an operating system does: RSDP, XSDT (RSDT before ACPI 2.0), table by signature.
//!
//! Pure: bytes are handed in by [`PhysicalMemory`]. Offsets are those of the ACPI specification 6.5, section 5.2.
//! Invariant: no table content makes a read leave its table; what does not fit is skipped.

/// Longest table that is looked at.
const TABLE_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 36;
/// Offset of the revision in an RSDP.
const REVISION: usize = 15;

/// The guest's memory, by physical address.
pub trait PhysicalMemory {
    /// The bytes there, or `None` if they cannot be looked at.
    fn bytes(&self, address: u64, len: usize) -> Option<&'static [u8]>;
}

/// What is missing, as a fixed word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing(pub &'static str);

/// The list of tables.
#[derive(Clone, Copy)]
pub struct Root {
    entries: &'static [u8],
    entry_bytes: usize,
}

impl Root {
    /// Finds the tables from the RSDP the loader named, or by a search of the BIOS area (section 5.2.5.1).
    ///
    /// # Errors
    /// Names what is missing or damaged.
    pub fn find(memory: &impl PhysicalMemory, rsdp: Option<u64>) -> Result<Self, Missing> {
        let rsdp = match rsdp {
            Some(address) => rsdp_at(memory, address),
            None => (0xe0000..0x10_0000).step_by(16).find_map(|address| rsdp_at(memory, address)),
        };
        let rsdp = rsdp.ok_or(Missing("rsdp"))?;
        let (signature, address, entry_bytes) = match rsdp.get(REVISION) {
            Some(2..) => (b"XSDT", read64(rsdp, 24), 8),
            _ => (b"RSDT", read32(rsdp, 16).map(u64::from), 4),
        };
        let list = address.and_then(|address| table_at(memory, address, signature)).ok_or(Missing("xsdt"))?;
        Ok(Self { entries: list.get(HEADER_BYTES..).unwrap_or_default(), entry_bytes })
    }

    /// The first table with this signature.
    pub fn table(&self, memory: &impl PhysicalMemory, signature: &[u8; 4]) -> Option<&'static [u8]> {
        let address = |entry: &'static [u8]| match self.entry_bytes {
            8 => read64(entry, 0),
            _ => read32(entry, 0).map(u64::from),
        };
        let mut addresses = self.entries.chunks_exact(self.entry_bytes).filter_map(address);
        addresses.find_map(|address| table_at(memory, address, signature))
    }
}

fn read<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

fn read32(bytes: &[u8], offset: usize) -> Option<u32> {
    read(bytes, offset).map(u32::from_le_bytes)
}

fn read64(bytes: &[u8], offset: usize) -> Option<u64> {
    read(bytes, offset).map(u64::from_le_bytes)
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// The revision tells how long it is: 20 bytes, 36 from ACPI 2.0 on; each length has its checksum (section 5.2.5.3).
fn rsdp_at(memory: &impl PhysicalMemory, address: u64) -> Option<&'static [u8]> {
    let short = memory.bytes(address, 20).filter(|rsdp| rsdp.starts_with(b"RSD PTR ") && sum(rsdp) == 0)?;
    match short.get(REVISION) {
        Some(2..) => memory.bytes(address, 36).filter(|rsdp| sum(rsdp) == 0),
        _ => Some(short),
    }
}

fn table_at(memory: &impl PhysicalMemory, address: u64, signature: &[u8; 4]) -> Option<&'static [u8]> {
    let header = memory.bytes(address, HEADER_BYTES)?;
    let len = read32(header, 4)? as usize;
    if !header.starts_with(signature) || !(HEADER_BYTES..=TABLE_MAX).contains(&len) {
        return None;
    }
    memory.bytes(address, len).filter(|table| sum(table) == 0)
}

/// The variable-length structures behind a table's fixed part: a type byte, a length byte, and the rest.
#[derive(Clone)]
struct Structures {
    rest: &'static [u8],
}

impl Iterator for Structures {
    type Item = (u8, &'static [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, len) = (*self.rest.first()?, usize::from(*self.rest.get(1)?));
        let structure = self.rest.get(..len).filter(|_| len >= 2)?;
        self.rest = self.rest.get(len..)?;
        Some((kind, structure))
    }
}

fn structures(table: &'static [u8], fixed: usize) -> Structures {
    Structures { rest: table.get(fixed..).unwrap_or_default() }
}

/// APIC ids of the enabled CPUs of a MADT, in its order (sections 5.2.12.2 and 5.2.12.12).
pub fn cpus(madt: &'static [u8]) -> impl Iterator<Item = u32> + Clone {
    structures(madt, 44).filter_map(|(kind, s)| {
        let (id, flags) = match kind {
            0 => (u32::from(*s.get(3)?), read32(s, 4)?),
            9 => (read32(s, 4)?, read32(s, 8)?),
            _ => return None,
        };
        (flags & 1 != 0).then_some(id)
    })
}

/// The address of the IOAPIC that takes the interrupts from 0 on (section 5.2.12.3).
pub fn ioapic(madt: &'static [u8]) -> Option<u32> {
    structures(madt, 44).find_map(|(kind, s)| (kind == 1 && read32(s, 8)? == 0).then_some(read32(s, 4)?))
}

/// What SRAT says of one CPU or one range (section 5.2.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// A CPU is on a node.
    Cpu {
        /// Its APIC id.
        apic_id: u32,
        /// The node.
        node: u32,
    },
    /// Memory is on a node.
    Memory {
        /// How much.
        bytes: u64,
        /// The node.
        node: u32,
    },
}

/// The enabled entries of a SRAT.
pub fn affinities(srat: &'static [u8]) -> impl Iterator<Item = Affinity> {
    structures(srat, 48).filter_map(|(kind, s)| {
        let (affinity, flags) = match kind {
            0 => {
                let node = u32::from_le_bytes([*s.get(2)?, *s.get(9)?, *s.get(10)?, *s.get(11)?]);
                (Affinity::Cpu { apic_id: u32::from(*s.get(3)?), node }, read32(s, 4)?)
            }
            1 => (Affinity::Memory { bytes: read64(s, 16)?, node: read32(s, 2)? }, read32(s, 28)?),
            2 => (Affinity::Cpu { apic_id: read32(s, 8)?, node: read32(s, 4)? }, read32(s, 12)?),
            _ => return None,
        };
        (flags & 1 != 0).then_some(affinity)
    })
}

/// How many nodes a SLIT is about, at most 256 (section 5.2.17).
pub fn localities(slit: &[u8]) -> u32 {
    read64(slit, 36).map_or(0, |count| count.min(256) as u32)
}

/// An entry of a SLIT.
pub fn distance(slit: &[u8], from: u32, to: u32) -> Option<u8> {
    slit.get(44 + from as usize * localities(slit) as usize + to as usize).copied()
}

/// How the machine is turned off and reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// Port and byte that power off a hardware-reduced machine (section 4.8.3.7).
    pub sleep_control: Option<(u16, u8)>,
    /// Port and word that power off any other machine (section 4.8.3.2).
    pub pm1a_control: Option<(u16, u16)>,
    /// Port and byte that reset (section 4.8.3.6).
    pub reset: Option<(u16, u8)>,
}

const FADT_RESET_SUPPORTED: u32 = 1 << 10;
const FADT_HARDWARE_REDUCED: u32 = 1 << 20;

/// Reads a FADT (section 5.2.9), and the sleep type from the DSDT that it names.
pub fn power(memory: &impl PhysicalMemory, fadt: &'static [u8]) -> Power {
    let flags = read32(fadt, 112).unwrap_or(0);
    let dsdt = read64(fadt, 140).filter(|a| *a != 0).or_else(|| read32(fadt, 40).map(u64::from));
    let sleep_type = dsdt.and_then(|address| table_at(memory, address, b"DSDT")).and_then(sleep_type_s5);
    let reduced = flags & FADT_HARDWARE_REDUCED != 0;
    let sleep_control = if reduced { port_of(fadt, 244) } else { None };
    let pm1a = if reduced { None } else { read32(fadt, 64).and_then(|port| u16::try_from(port).ok()) };
    let reset = if flags & FADT_RESET_SUPPORTED == 0 { None } else { port_of(fadt, 116) };
    Power {
        // SLP_EN is bit 5, SLP_TYP bits 4:2; in PM1a_CNT bit 13 and bits 12:10.
        sleep_control: sleep_control.zip(sleep_type).map(|(port, s5)| (port, 1 << 5 | s5 << 2)),
        pm1a_control: pm1a.filter(|p| *p != 0).zip(sleep_type).map(|(port, s5)| (port, 1 << 13 | u16::from(s5) << 10)),
        reset: reset.zip(fadt.get(128).copied()),
    }
}

/// The port of a generic address structure (section 5.2.3.2) in I/O space.
fn port_of(fadt: &[u8], offset: usize) -> Option<u16> {
    let in_io_space = *fadt.get(offset)? == 1;
    let port = read64(fadt, offset + 4)?;
    (in_io_space && port != 0).then(|| u16::try_from(port).ok()).flatten()
}

/// The first element of `\_S5`, without an AML interpreter: `Name (_S5, Package () { n, … })` as every firmware writes
/// it (sections 7.4.2.6 and 20.2.5.4): NameOp, the name with or without a root prefix, PackageOp, a length of one to
/// four bytes, the element count, then a constant.
fn sleep_type_s5(dsdt: &'static [u8]) -> Option<u8> {
    const PACKAGE_OP: u8 = 0x12;
    const BYTE_PREFIX: u8 = 0x0a;
    let at = dsdt.windows(5).position(|w| w.starts_with(b"_S5_") && w.ends_with(&[PACKAGE_OP]))?;
    let body = dsdt.get(at + 5..)?;
    let length_bytes = 1 + usize::from(body.first()? >> 6);
    let element = body.get(length_bytes + 1..)?;
    let value = match *element.first()? {
        BYTE_PREFIX => *element.get(1)?,
        zero_or_one @ (0 | 1) => zero_or_one,
        _ => return None,
    };
    (value < 8).then_some(value)
}
