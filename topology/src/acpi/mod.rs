// SPDX-License-Identifier: Apache-2.0
//! The ACPI tables of a guest: what `build` makes of a topology, a memory map and the platform's numbers.
//!
//! `GuestTopology` + `MemoryMap` + [`Platform`] → [`AcpiTables`] → guest memory. The tables are those of ACPI 6.3
//! (January 2019), one file each, and describe a hardware-reduced machine; table and section numbers are of that
//! revision. [`decode`] is the way back. Invariant: what [`decode`] reads from the bytes is the topology they were made
//! of, and the only pointers are RSDP → XSDT → tables and FADT → DSDT.

pub mod decode;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

mod dsdt;
mod fadt;
mod hmat;
mod madt;
mod platform;
mod pptt;
mod sdt;
mod slit;
mod srat;

use acpi_tables::Aml;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use thiserror::Error;

pub use hmat::{LOCAL_BANDWIDTH_MB_PER_S, LOCAL_LATENCY_NS};
pub use madt::uid;
pub use platform::{EVENT_POWER_BUTTON, IoApic, Platform, PortDevice, PowerPorts, S5_SLEEP_TYPE};
pub use sdt::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};

use crate::guest::GuestTopology;
use crate::memory_map::MemoryMap;

/// Tables start at multiples of this: no table needs more, and hexdumps stay legible.
const ALIGN_BYTES: u64 = 16;

/// One table, where it goes and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpiTable {
    /// Its four letters, `APIC` for the MADT and `FACP` for the FADT.
    pub signature: [u8; 4],
    /// Guest-physical address of its first byte.
    pub gpa: u64,
    /// The whole table, header included.
    pub bytes: Vec<u8>,
}

/// All tables of a guest, to be copied to guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcpiTables {
    /// Guest-physical address of the RSDP: what the boot information says.
    pub rsdp_gpa: u64,
    /// The RSDP.
    pub rsdp: Vec<u8>,
    /// The tables in ascending order of address, the XSDT last.
    pub tables: Vec<AcpiTable>,
}

impl AcpiTables {
    /// The table of a signature.
    #[must_use]
    pub fn table(&self, signature: [u8; 4]) -> Option<&AcpiTable> {
        self.tables.iter().find(|table| table.signature == signature)
    }

    /// Everything to be written, as (guest-physical address, bytes).
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let tables = self.tables.iter().map(|table| (table.gpa, table.bytes.as_slice()));
        std::iter::once((self.rsdp_gpa, self.rsdp.as_slice())).chain(tables)
    }
}

/// Why the tables cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AcpiError {
    /// The tables need more bytes than are reserved for them.
    #[error(
        "the ACPI tables of this machine take {needed_bytes} bytes, but {available_bytes} are reserved at \
         {tables_gpa:#x}: reserve more, or move them to the top of low memory"
    )]
    DoNotFit {
        /// Where they should have gone.
        tables_gpa: u64,
        /// Bytes they need, as [`required_bytes`] says.
        needed_bytes: u64,
        /// Bytes that are reserved.
        available_bytes: u64,
    },
    /// The RSDP or the first table is not at a multiple of 16.
    #[error(
        "{what} cannot be at {gpa:#x}: an operating system looks at multiples of {ALIGN_BYTES} only; move it there"
    )]
    Unaligned {
        /// Which of them.
        what: &'static str,
        /// The address.
        gpa: u64,
    },
    /// The reserved region ends above the last address.
    #[error(
        "{len_bytes} bytes for ACPI tables at {tables_gpa:#x} reach past the end of the address space: move them down"
    )]
    PastEnd {
        /// Where the region starts.
        tables_gpa: u64,
        /// Its length in bytes.
        len_bytes: u64,
    },
    /// The RSDP lies inside the region of the tables.
    #[error("the RSDP at {rsdp_gpa:#x} is in the region of the tables at {tables_gpa:#x}: put the tables behind it")]
    RsdpInTables {
        /// The address of the RSDP.
        rsdp_gpa: u64,
        /// Where the region starts.
        tables_gpa: u64,
    },
}

/// The tables of a machine.
///
/// # Errors
/// [`AcpiError`] when they cannot be where the platform wants them.
pub fn build(topology: &GuestTopology, map: &MemoryMap, platform: &Platform) -> Result<AcpiTables, AcpiError> {
    check_places(platform)?;
    let bodies = bodies(topology, map, platform);
    let needed_bytes = needed(&bodies);
    if needed_bytes > platform.tables_len_bytes {
        let (tables_gpa, available_bytes) = (platform.tables_gpa, platform.tables_len_bytes);
        return Err(AcpiError::DoNotFit { tables_gpa, needed_bytes, available_bytes });
    }
    Ok(place(bodies, platform))
}

/// Bytes that the tables of a machine need, wherever they are put; the RSDP is not among them.
#[must_use]
pub fn required_bytes(topology: &GuestTopology, map: &MemoryMap, platform: &Platform) -> u64 {
    needed(&bodies(topology, map, platform))
}

fn check_places(platform: &Platform) -> Result<(), AcpiError> {
    let &Platform { rsdp_gpa, tables_gpa, tables_len_bytes: len_bytes, .. } = platform;
    for (what, gpa) in [("the RSDP", rsdp_gpa), ("the first ACPI table", tables_gpa)] {
        if gpa % ALIGN_BYTES != 0 {
            return Err(AcpiError::Unaligned { what, gpa });
        }
    }
    let end = tables_gpa.checked_add(len_bytes).ok_or(AcpiError::PastEnd { tables_gpa, len_bytes })?;
    if rsdp_gpa < end && tables_gpa < rsdp_gpa.saturating_add(rsdp_len()) {
        return Err(AcpiError::RsdpInTables { rsdp_gpa, tables_gpa });
    }
    Ok(())
}

/// Every table but the XSDT, in the order in which they are placed. The FADT is second and not linked yet.
fn bodies(topology: &GuestTopology, map: &MemoryMap, platform: &Platform) -> Vec<([u8; 4], Vec<u8>)> {
    let apic_ids: Vec<_> = topology.vcpus().map(|vcpu| topology.apic_id(vcpu)).collect();
    let cpus: Vec<_> = topology.vcpus().map(|vcpu| (topology.apic_id(vcpu), topology.node_of(vcpu))).collect();
    let ids = || topology.nodes().iter().map(|node| node.id);
    let distances: Vec<u8> = ids().flat_map(|from| ids().map(move |to| topology.distance(from, to))).collect();
    let domains: Vec<_> = topology
        .nodes()
        .iter()
        .map(|node| hmat::Domain { node: node.id, has_cpus: !node.cpus.is_empty(), has_memory: node.memory_bytes > 0 })
        .collect();
    let localities = u32::try_from(topology.nodes().len()).expect("invariant: a machine has at most 64 nodes");
    vec![
        (*b"DSDT", dsdt::table(platform)),
        (*b"FACP", fadt::table(platform, 0)),
        (*b"APIC", madt::table(&apic_ids, platform)),
        (*b"SRAT", srat::table(&cpus, map.ram())),
        (*b"SLIT", slit::table(localities, &distances)),
        (*b"PPTT", pptt::table(topology)),
        (*b"HMAT", hmat::table(&domains, &|from, to| topology.distance(from, to))),
    ]
}

fn needed(bodies: &[([u8; 4], Vec<u8>)]) -> u64 {
    let tables: u64 = bodies.iter().map(|(_, bytes)| (bytes.len() as u64).next_multiple_of(ALIGN_BYTES)).sum();
    tables + xsdt_len(bodies.len())
}

/// Length of the XSDT of so many tables: all but the DSDT, which the FADT names.
const fn xsdt_len(tables: usize) -> u64 {
    sdt::HEADER_LEN as u64 + 8 * (tables as u64 - 1)
}

fn rsdp_len() -> u64 {
    Rsdp::len() as u64
}

fn place(bodies: Vec<([u8; 4], Vec<u8>)>, platform: &Platform) -> AcpiTables {
    let mut tables = Vec::with_capacity(bodies.len() + 1);
    let mut gpa = platform.tables_gpa;
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    for (signature, bytes) in bodies {
        let bytes = if &signature == b"FACP" { fadt::table(platform, platform.tables_gpa) } else { bytes };
        let next = gpa + (bytes.len() as u64).next_multiple_of(ALIGN_BYTES);
        if &signature != b"DSDT" {
            xsdt.add_entry(gpa);
        }
        tables.push(AcpiTable { signature, gpa, bytes });
        gpa = next;
    }
    tables.push(AcpiTable { signature: *b"XSDT", gpa, bytes: bytes_of(&xsdt) });
    AcpiTables { rsdp_gpa: platform.rsdp_gpa, rsdp: bytes_of(&Rsdp::new(OEM_ID, gpa)), tables }
}

fn bytes_of(aml: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    aml.to_aml_bytes(&mut bytes);
    bytes
}
