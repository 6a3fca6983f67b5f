// SPDX-License-Identifier: Apache-2.0
//! ACPI tables: made from the topology, put where the layout says.

use std::ops::Range;

use topology::acpi::{self, AcpiError, AcpiTables, IoApic, Platform, PortDevice, PowerPorts};
use topology::guest::GuestTopology;
use topology::memory_map::MemoryMap;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::layout;
use crate::memory::GuestRam;

/// The tables could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// They cannot be built for this machine.
    #[error(transparent)]
    Build(#[from] AcpiError),
    /// Low memory has no room for them.
    #[error(
        "the ACPI tables of this machine take {bytes} bytes, more than the {ram} bytes of RAM below the MMIO gap can \
         spare; give the guest more --memory"
    )]
    NoRoom {
        /// How much they take.
        bytes: u64,
        /// How much RAM is below the gap.
        ram: u64,
    },
    /// Guest memory does not reach to where they go.
    #[error("the ACPI tables do not fit into the guest's RAM at {gpa:#x}: {source}; give it more --memory")]
    Write {
        /// Where.
        gpa: u64,
        /// vm-memory's reason.
        source: GuestMemoryError,
    },
}

/// The tables, and what of memory they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltTables {
    /// The tables and where each goes.
    pub acpi: AcpiTables,
    /// What the guest must not take for free RAM, besides the legacy hole.
    pub reserved: Range<u64>,
}

/// Bytes that the RSDP may take, aligned as the tables behind it want.
const RSDP_BYTES: u64 = 64;

/// The area behind the RSDP, inside the legacy hole.
const BEHIND_RSDP: Range<u64> = layout::ACPI_RSDP + RSDP_BYTES..layout::ACPI_AREA_END;

/// Builds the tables of a machine for where they will go.
///
/// # Errors
/// [`TablesError::Build`], [`TablesError::NoRoom`].
pub fn build(topology: &GuestTopology, map: &MemoryMap) -> Result<BuiltTables, TablesError> {
    // How much they take does not depend on where they go.
    let needed = acpi::required_bytes(topology, map, &platform(&BEHIND_RSDP));
    let reserved = area(map, needed)?;
    let acpi = acpi::build(topology, map, &platform(&reserved))?;
    Ok(BuiltTables { acpi, reserved })
}

impl BuiltTables {
    /// Writes the tables to guest memory.
    ///
    /// # Errors
    /// [`TablesError::Write`].
    pub fn write(&self, ram: &GuestRam) -> Result<(), TablesError> {
        self.acpi.pieces().try_for_each(|(gpa, bytes)| {
            ram.memory().write_slice(bytes, GuestAddress(gpa)).map_err(|source| TablesError::Write { gpa, source })
        })
    }
}

/// Right behind the RSDP while they fit, else at the top of the RAM below the gap.
fn area(map: &MemoryMap, needed: u64) -> Result<Range<u64>, TablesError> {
    if needed <= BEHIND_RSDP.end - BEHIND_RSDP.start {
        return Ok(BEHIND_RSDP);
    }
    let low_end = map.low_end();
    let start = low_end.saturating_sub(needed) / layout::PAGE_SIZE * layout::PAGE_SIZE;
    if start <= layout::HIGH_RAM_START {
        return Err(TablesError::NoRoom { bytes: needed, ram: low_end });
    }
    Ok(start..low_end)
}

fn platform(tables: &Range<u64>) -> Platform {
    Platform {
        rsdp_gpa: layout::ACPI_RSDP,
        tables_gpa: tables.start,
        tables_len_bytes: tables.end - tables.start,
        io_apic: IoApic { id: 0, gpa: layout::IOAPIC },
        local_apic_gpa: layout::LOCAL_APIC,
        serial: PortDevice { port: layout::SERIAL_PORT, gsi: layout::SERIAL_GSI },
        power: PowerPorts {
            sleep_control: layout::SLEEP_CONTROL_PORT,
            sleep_status: layout::SLEEP_STATUS_PORT,
            reset: layout::RESET_PORT,
            reset_value: layout::RESET_VALUE,
        },
        event_device: PortDevice { port: layout::EVENT_PORT, gsi: layout::EVENT_GSI },
        pvpanic_port: layout::PVPANIC_PORT,
    }
}
