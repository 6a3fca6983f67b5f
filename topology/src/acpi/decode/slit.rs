// SPDX-License-Identifier: Apache-2.0
//! SLIT back to a matrix of distances (ACPI 6.3 section 5.2.17). Whether they make sense is the doctor's question.

use super::error::DecodeError;
use super::table::Table;
use crate::id::NodeId;

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slit {
    localities: u32,
    distances: Vec<u8>,
}

impl Slit {
    /// Number of proximity domains that it has rows for.
    #[must_use]
    pub const fn localities(&self) -> u32 {
        self.localities
    }

    /// The distance from a domain to another; none when it has no row or column for one of them.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        let inside = from.0 < self.localities && to.0 < self.localities;
        let row = from.index() * NodeId(self.localities).index();
        self.distances.get(row + to.index()).copied().filter(|_| inside)
    }
}

pub(super) fn parse(table: &Table) -> Result<Slit, DecodeError> {
    let localities = table.u64(36)?;
    let distances = table.rest(44).to_vec();
    match u32::try_from(localities) {
        Ok(count) if localities.checked_mul(localities) == Some(distances.len() as u64) => {
            Ok(Slit { localities: count, distances })
        }
        _ => Err(DecodeError::SlitLocalities { localities, length: table.len_u32() }),
    }
}
