// SPDX-License-Identifier: Apache-2.0
//! SLIT: the matrix of distances between proximity domains (ACPI 6.3 section 5.2.17).
//!
//! Our own bytes: `acpi_tables` 0.2 writes both halves of the matrix at once, so an asymmetric one cannot be said.
//! Invariant: row `from`, column `to`, as `GuestTopology::distance(from, to)` has it.

use super::sdt::{self, Fields};

/// The revision of the table in ACPI 6.3 (table 5-77).
pub(crate) const REVISION: u8 = 1;

/// The table for a matrix in row order; `localities` squared distances.
pub(crate) fn table(localities: u32, distances: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + distances.len());
    body.u64(u64::from(localities));
    body.extend_from_slice(distances);
    sdt::close(*b"SLIT", REVISION, &body)
}
