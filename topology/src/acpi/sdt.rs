// SPDX-License-Identifier: Apache-2.0
//! The header that every description table starts with, and the checksum over the whole of it.
//!
//! Tables whose body is ours are closed here; `acpi_tables` writes the header. Invariant: the bytes of every table that
//! leaves this module sum to zero and its length field is its length.

use acpi_tables::sdt::Sdt;

/// OEM id of every table: six characters, as ACPI 6.3 section 5.2.6 wants it.
pub const OEM_ID: [u8; 6] = *b"VMMRS ";
/// OEM table id of every table; the FADT's must be that of the XSDT (ACPI 6.3, table 5-33), so all share it.
pub const OEM_TABLE_ID: [u8; 8] = *b"VMMTOPO ";
/// OEM revision of every table: grows when the bytes that one topology produces change.
pub const OEM_REVISION: u32 = 1;
/// Length of the header in bytes (ACPI 6.3, table 5-30).
pub(crate) const HEADER_LEN: usize = 36;

/// A whole table from the body that follows its header.
///
/// `acpi_tables` recomputes the checksum over the whole table at every append, so the body comes in one piece.
pub(crate) fn close(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut sdt = Sdt::new(signature, 36, revision, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    sdt.append_slice(body);
    sdt.as_slice().to_vec()
}

/// The sum of all bytes modulo 256: zero for a table that is intact (ACPI 6.3 section 5.2.6, Checksum).
pub(crate) fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Little-endian fields appended to a table body.
pub(crate) trait Fields {
    /// One byte.
    fn u8(&mut self, value: u8) -> &mut Self;
    /// Two bytes.
    fn u16(&mut self, value: u16) -> &mut Self;
    /// Four bytes.
    fn u32(&mut self, value: u32) -> &mut Self;
    /// Eight bytes.
    fn u64(&mut self, value: u64) -> &mut Self;
    /// `count` bytes of zero, where the specification says reserved.
    fn reserved(&mut self, count: usize) -> &mut Self;
}

impl Fields for Vec<u8> {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn reserved(&mut self, count: usize) -> &mut Self {
        self.resize(self.len() + count, 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_table_knows_its_length_and_sums_to_zero() {
        let table = close(*b"TEST", 3, &[1, 2, 3, 4, 5]);
        assert_eq!(table.len(), HEADER_LEN + 5);
        assert_eq!(u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize, table.len());
        assert_eq!((&table[..4], table[8], sum(&table)), (b"TEST".as_slice(), 3, 0));
        assert_eq!((&table[10..16], &table[16..24]), (OEM_ID.as_slice(), OEM_TABLE_ID.as_slice()));
        assert_eq!(&table[36..], [1, 2, 3, 4, 5]);
    }
}
