// SPDX-License-Identifier: Apache-2.0
//! One table's bytes: loaded within limits, checked, and read field by field.
//!
//! Invariant: a [`Table`] is as long as its length field says, sums to zero, and a read outside it is an error.

use super::error::DecodeError;
use super::{MAX_TABLE_BYTES, Memory};
use crate::acpi::sdt::{HEADER_LEN, sum};

/// The whole of a table.
pub(super) struct Table {
    name: String,
    bytes: Vec<u8>,
}

/// An entry of a table: a slice of it that starts with a type and a length.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    table: &'a Table,
    pub(super) kind: u16,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// How the entries of a table start.
#[derive(Clone, Copy)]
pub(super) enum EntryHeader {
    /// Type and length, a byte each: MADT, SRAT, PPTT.
    Bytes,
    /// Type of two bytes, two reserved, length of four: HMAT.
    Wide,
}

/// Loads the table at `gpa`; any signature will do when none is given.
pub(super) fn load(memory: Memory<'_>, gpa: u64, signature: Option<&[u8; 4]>) -> Result<Table, DecodeError> {
    let wanted = signature.map_or_else(|| "table".to_owned(), |letters| letters.escape_ascii().to_string());
    let header = bytes(memory, gpa, 36, &wanted)?;
    let table = Table { name: wanted, bytes: header };
    let found: [u8; 4] = table.array(0)?;
    if signature.is_some_and(|letters| *letters != found) {
        let found = found.escape_ascii().to_string();
        return Err(DecodeError::Signature { table: table.name, gpa, found });
    }
    let name = found.escape_ascii().to_string();
    let length = table.u32(4)?;
    if length < 36 {
        return Err(DecodeError::TooShort { table: name, length, needed: 36 });
    }
    if length > MAX_TABLE_BYTES {
        return Err(DecodeError::TooLong { table: name, length });
    }
    let bytes = bytes(memory, gpa, length, &name)?;
    match sum(&bytes) {
        0 => Ok(Table { name, bytes }),
        sum => Err(DecodeError::Checksum { table: name, sum }),
    }
}

/// `len_bytes` of guest memory, at most [`MAX_TABLE_BYTES`].
pub(super) fn bytes(memory: Memory<'_>, gpa: u64, len_bytes: u32, table: &str) -> Result<Vec<u8>, DecodeError> {
    let mut buffer = vec![0; len_bytes.min(MAX_TABLE_BYTES) as usize];
    if gpa.checked_add(u64::from(len_bytes)).is_some() && memory(gpa, &mut buffer) {
        return Ok(buffer);
    }
    Err(DecodeError::Unreadable { table: table.to_owned(), gpa, len_bytes })
}

impl Table {
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    pub(super) fn len_u32(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    /// The revision in the header.
    pub(super) fn revision(&self) -> Result<u8, DecodeError> {
        self.u8(8)
    }

    pub(super) fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], DecodeError> {
        let field = self.bytes.get(offset..).and_then(|rest| rest.first_chunk());
        field.copied().ok_or_else(|| DecodeError::TooShort {
            table: self.name(),
            length: self.len_u32(),
            needed: u32::try_from(offset.saturating_add(N)).unwrap_or(u32::MAX),
        })
    }

    pub(super) fn u8(&self, offset: usize) -> Result<u8, DecodeError> {
        self.array(offset).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&self, offset: usize) -> Result<u16, DecodeError> {
        self.array(offset).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&self, offset: usize) -> Result<u32, DecodeError> {
        self.array(offset).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, offset: usize) -> Result<u64, DecodeError> {
        self.array(offset).map(u64::from_le_bytes)
    }

    /// Everything behind `offset`.
    pub(super) fn rest(&self, offset: usize) -> &[u8] {
        self.bytes.get(offset..).unwrap_or(&[])
    }

    /// The entries behind the fixed part, each inside the table.
    pub(super) fn entries(&self, fixed_len: usize, header: EntryHeader) -> Result<Vec<Entry<'_>>, DecodeError> {
        let mut offset = HEADER_LEN + fixed_len;
        if offset > self.bytes.len() {
            let needed = u32::try_from(offset).unwrap_or(u32::MAX);
            return Err(DecodeError::TooShort { table: self.name(), length: self.len_u32(), needed });
        }
        let mut entries = Vec::new();
        while offset < self.bytes.len() {
            let entry = self.entry(offset, header)?;
            offset += entry.length;
            entries.push(entry);
        }
        Ok(entries)
    }

    fn entry(&self, offset: usize, header: EntryHeader) -> Result<Entry<'_>, DecodeError> {
        let at = u32::try_from(offset).unwrap_or(u32::MAX);
        let overruns = || DecodeError::EntryOverruns { table: self.name(), offset: at, table_len: self.len_u32() };
        let (kind, length, needed) = match header {
            EntryHeader::Bytes => {
                let [kind, length] = self.array(offset).map_err(|_| overruns())?;
                (u16::from(kind), u32::from(length), 2)
            }
            EntryHeader::Wide => {
                let length = self.u32(offset + 4).map_err(|_| overruns())?;
                (self.u16(offset)?, length, 8)
            }
        };
        if length < needed {
            return Err(DecodeError::EntryTooShort { table: self.name(), offset: at, kind, length, needed });
        }
        let length = length as usize;
        if length > self.bytes.len() - offset {
            return Err(overruns());
        }
        Ok(Entry { table: self, kind, offset, length })
    }
}

impl Entry<'_> {
    /// Where the entry starts, as errors and PPTT references count it.
    pub(super) fn at(&self) -> u32 {
        u32::try_from(self.offset).unwrap_or(u32::MAX)
    }

    /// Refuses an entry shorter than its kind's fixed part.
    pub(super) fn at_least(&self, needed: u32) -> Result<(), DecodeError> {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        if length >= needed {
            return Ok(());
        }
        let (table, kind) = (self.table.name(), self.kind);
        Err(DecodeError::EntryTooShort { table, offset: self.at(), kind, length, needed })
    }

    pub(super) fn u8(&self, offset: usize) -> Result<u8, DecodeError> {
        self.table.u8(self.offset + offset)
    }

    pub(super) fn u16(&self, offset: usize) -> Result<u16, DecodeError> {
        self.table.u16(self.offset + offset)
    }

    pub(super) fn u32(&self, offset: usize) -> Result<u32, DecodeError> {
        self.table.u32(self.offset + offset)
    }

    pub(super) fn u64(&self, offset: usize) -> Result<u64, DecodeError> {
        self.table.u64(self.offset + offset)
    }
}
