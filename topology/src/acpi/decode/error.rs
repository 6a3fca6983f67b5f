// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with tables in guest memory: one variant per fault.

use thiserror::Error;

use super::{MAX_TABLE_BYTES, MAX_TABLES};

/// The first fault found on the way through the tables. `table` is the signature, offsets count from a table's start.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Memory that should hold a table cannot be read.
    #[error("{table}: {len_bytes} bytes at {gpa:#x} are not all memory: the pointer to it is wrong")]
    Unreadable {
        /// What should be there.
        table: String,
        /// Guest-physical address.
        gpa: u64,
        /// Bytes that were wanted.
        len_bytes: u32,
    },
    /// The eight letters of the RSDP are not where the boot information points.
    #[error("no RSDP at {gpa:#x}: `RSD PTR ` is not there")]
    NoRsdp {
        /// Guest-physical address.
        gpa: u64,
    },
    /// An RSDP without an XSDT address.
    #[error("the RSDP has revision {revision}: an XSDT needs 2 or later")]
    RsdpRevision {
        /// What it says.
        revision: u8,
    },
    /// The RSDP's length field is not that of revision 2.
    #[error("the RSDP says that it is {length} bytes long: revision 2 is 36 or longer")]
    RsdpLength {
        /// What it says.
        length: u32,
    },
    /// The sum over the first 20 bytes of the RSDP is not zero.
    #[error("the first 20 bytes of the RSDP sum to {sum:#04x} instead of 0")]
    RsdpChecksum {
        /// The sum.
        sum: u8,
    },
    /// The sum over the whole RSDP is not zero.
    #[error("the RSDP sums to {sum:#04x} instead of 0")]
    RsdpExtendedChecksum {
        /// The sum.
        sum: u8,
    },
    /// A pointer leads to another table than it should.
    #[error("{table} should be at {gpa:#x}, but `{found}` is")]
    Signature {
        /// What should be there.
        table: String,
        /// Guest-physical address.
        gpa: u64,
        /// The four letters found.
        found: String,
    },
    /// A length field is too small for the table's fixed part.
    #[error("{table} says that it is {length} bytes long: its fixed part alone is {needed}")]
    TooShort {
        /// The table.
        table: String,
        /// What it says.
        length: u32,
        /// Bytes of the fixed part.
        needed: u32,
    },
    /// A length field is beyond reason.
    #[error("{table} says that it is {length} bytes long: more than {MAX_TABLE_BYTES} is not read")]
    TooLong {
        /// The table.
        table: String,
        /// What it says.
        length: u32,
    },
    /// The sum over a table is not zero.
    #[error("{table} sums to {sum:#04x} instead of 0: a byte of it was changed or its length is wrong")]
    Checksum {
        /// The table.
        table: String,
        /// The sum.
        sum: u8,
    },
    /// A revision whose meaning is not known.
    #[error("{table} has revision {revision}, which Linux ignores")]
    Revision {
        /// The table.
        table: String,
        /// What it says.
        revision: u8,
    },
    /// The XSDT's length leaves a part of a pointer.
    #[error("the XSDT is {length} bytes long: {} bytes are left over behind its pointers", (length - 36) % 8)]
    XsdtLength {
        /// What it says.
        length: u32,
    },
    /// The XSDT names too many tables.
    #[error("the XSDT names {count} tables: more than {MAX_TABLES} are not read")]
    TooManyTables {
        /// How many.
        count: usize,
    },
    /// Two tables of a kind that there is one of.
    #[error("the XSDT names two tables {table}: Linux uses the first")]
    Duplicate {
        /// The table.
        table: String,
    },
    /// A table that no machine can do without.
    #[error("the XSDT names no table {table}")]
    Missing {
        /// The table.
        table: String,
    },
    /// An entry's length is too small for its kind.
    #[error("{table}: entry of type {kind} at {offset:#x} says that it is {length} bytes long: it takes {needed}")]
    EntryTooShort {
        /// The table.
        table: String,
        /// Where the entry starts.
        offset: u32,
        /// Its type.
        kind: u16,
        /// What it says.
        length: u32,
        /// Bytes of its fixed part.
        needed: u32,
    },
    /// An entry ends behind its table.
    #[error("{table}: entry at {offset:#x} ends behind the table, which is {table_len} bytes long")]
    EntryOverruns {
        /// The table.
        table: String,
        /// Where the entry starts.
        offset: u32,
        /// The table's length.
        table_len: u32,
    },
    /// The number of localities does not fit the table's length.
    #[error("SLIT says {localities} localities, but has room for another matrix: it is {length} bytes long")]
    SlitLocalities {
        /// What it says.
        localities: u64,
        /// The table's length.
        length: u32,
    },
    /// A processor node's parent is no processor node.
    #[error("PPTT: the parent of the node at {offset:#x} is at {parent:#x}, where no processor node starts")]
    PpttParent {
        /// Where the node starts.
        offset: u32,
        /// What it names.
        parent: u32,
    },
    /// A node is its own ancestor.
    #[error("PPTT: the node at {offset:#x} is its own ancestor")]
    PpttLoop {
        /// Where the node starts.
        offset: u32,
    },
    /// A node's resource or a cache's next level is no cache.
    #[error("PPTT: the entry at {offset:#x} names a cache at {cache:#x}, where none starts")]
    PpttCache {
        /// Where the entry starts.
        offset: u32,
        /// What it names.
        cache: u32,
    },
    /// A cache is its own next level.
    #[error("PPTT: the cache at {offset:#x} is its own next level")]
    PpttCacheLoop {
        /// Where the cache starts.
        offset: u32,
    },
    /// The matrix of a locality structure does not fit it.
    #[error("HMAT: {initiators} initiators and {targets} targets do not fit the structure at {offset:#x}")]
    HmatMatrix {
        /// Where the structure starts.
        offset: u32,
        /// How many it says.
        initiators: u32,
        /// How many it says.
        targets: u32,
    },
}
