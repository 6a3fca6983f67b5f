// SPDX-License-Identifier: Apache-2.0
//! HMAT back to latencies and bandwidths (ACPI 6.3 section 5.2.27).
//!
//! As drivers/acpi/numa/hmat.c reads revision 2 (Linux 6.12): an entry times the unit, picoseconds rounded up to
//! nanoseconds. Invariant: a matrix has an entry for every pair of its lists.

use super::error::DecodeError;
use super::table::{Entry, EntryHeader, Table};
use crate::acpi::hmat::{ACCESS_BANDWIDTH, ACCESS_LATENCY, REVISION, UNREACHABLE_ENTRY};
use crate::id::NodeId;

/// Memory and the CPUs it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryDomain {
    /// Proximity domain of the memory.
    pub memory: NodeId,
    /// Proximity domain of the CPUs, if any.
    pub initiator: Option<NodeId>,
}

/// What a matrix measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Access latency in nanoseconds.
    LatencyNs,
    /// Access bandwidth in megabytes a second.
    BandwidthMbPerS,
    /// Another data type of table 5-146.
    Other(u8),
}

/// A matrix from CPUs to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locality {
    /// What it measures.
    pub quantity: Quantity,
    /// Proximity domains of the rows.
    pub initiators: Vec<NodeId>,
    /// Proximity domains of the columns.
    pub targets: Vec<NodeId>,
    /// Values in the unit of the quantity, row by row; none where there is no way or no value.
    pub values: Vec<Option<u64>>,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hmat {
    /// Memory proximity domains.
    pub domains: Vec<MemoryDomain>,
    /// Matrices.
    pub localities: Vec<Locality>,
    /// How many memory-side caches there are.
    pub memory_side_caches: usize,
}

pub(super) fn parse(table: &Table) -> Result<Hmat, DecodeError> {
    let revision = table.revision()?;
    if revision != REVISION {
        return Err(DecodeError::Revision { table: table.name(), revision });
    }
    let mut hmat = Hmat { domains: Vec::new(), localities: Vec::new(), memory_side_caches: 0 };
    for entry in table.entries(4, EntryHeader::Wide)? {
        match entry.kind {
            0 => hmat.domains.push(domain(&entry)?),
            1 => hmat.localities.push(locality(&entry)?),
            2 => hmat.memory_side_caches += 1,
            _ => {}
        }
    }
    Ok(hmat)
}

fn domain(entry: &Entry<'_>) -> Result<MemoryDomain, DecodeError> {
    entry.at_least(40)?;
    let initiator = Some(NodeId(entry.u32(12)?));
    let valid = entry.u16(8)? & 1 != 0;
    Ok(MemoryDomain { memory: NodeId(entry.u32(16)?), initiator: initiator.filter(|_| valid) })
}

fn locality(entry: &Entry<'_>) -> Result<Locality, DecodeError> {
    entry.at_least(32)?;
    let (initiators, targets) = (entry.u32(12)?, entry.u32(16)?);
    let (wide_rows, wide_columns) = (u128::from(initiators), u128::from(targets));
    if 32 + 4 * (wide_rows + wide_columns) + 2 * wide_rows * wide_columns > entry.length as u128 {
        return Err(DecodeError::HmatMatrix { offset: entry.at(), initiators, targets });
    }
    let (rows, columns) = (initiators as usize, targets as usize);
    let list = |from: usize, count: usize| -> Result<Vec<NodeId>, DecodeError> {
        (0..count).map(|place| entry.u32(from + 4 * place).map(NodeId)).collect()
    };
    let quantity = match entry.u8(9)? {
        ACCESS_LATENCY => Quantity::LatencyNs,
        ACCESS_BANDWIDTH => Quantity::BandwidthMbPerS,
        other => Quantity::Other(other),
    };
    let unit = entry.u64(24)?;
    let matrix = 32 + 4 * (rows + columns);
    let values = (0..rows * columns).map(|place| entry.u16(matrix + 2 * place).map(|raw| value(raw, unit, quantity)));
    Ok(Locality {
        quantity,
        initiators: list(32, rows)?,
        targets: list(32 + 4 * rows, columns)?,
        values: values.collect::<Result<_, _>>()?,
    })
}

/// As `hmat_normalize`: nothing for an unreachable, missing or overflowing entry.
fn value(raw: u16, unit: u64, quantity: Quantity) -> Option<u64> {
    let value = u64::from(raw).checked_mul(unit).filter(|value| *value != 0 && raw != UNREACHABLE_ENTRY)?;
    Some(if quantity == Quantity::LatencyNs { value.div_ceil(1000) } else { value })
}
