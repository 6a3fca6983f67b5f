// SPDX-License-Identifier: Apache-2.0
//! What a kernel that is entered in 64-bit mode finds under its feet: a GDT and page tables that map 4 GiB to themselves.
//!
//! Source: Documentation/arch/x86/boot.rst, "64-bit Boot Protocol": flat segments `__BOOT_CS` (0x10) and `__BOOT_DS`
//! (0x18), paging on, and identity mapping for the kernel, the zero page and the command line.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use crate::layout;

/// Descriptors, in the order of their selectors (Intel SDM vol. 3A, figures 3-8 and 7-4): none, none, 64-bit code
/// (execute/read), data (read/write), TSS busy (two entries). Limits are 4 GiB but for the TSS.
const GDT: [u64; layout::GDT_ENTRIES] = [0, 0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF, 0x0000_8B00_0000_0067, 0];

/// Entries of a page table, at each level.
const ENTRIES: u64 = 512;
/// Page tables of the third level: each maps 1 GiB.
const DIRECTORIES: u64 = 4;
/// Present and writable (Intel SDM vol. 3A, section 4.5).
const TABLE: u64 = 0b11;
/// A page of 2 MiB: present, writable, page size.
const LARGE_PAGE: u64 = 1 << 7 | 0b11;
/// Bits of an address within a page of 2 MiB.
const LARGE_PAGE_SHIFT: u32 = 21;

/// Writes the GDT to [`layout::GDT`] and the page tables from [`layout::PAGE_TABLES`] on.
///
/// # Errors
/// Guest memory does not reach to where they go.
pub fn write(memory: &GuestMemoryMmap) -> Result<(), GuestMemoryError> {
    write_table(memory, layout::GDT, GDT)?;
    let table = |index: u64| layout::PAGE_TABLES + index * layout::PAGE_SIZE;
    write_table(memory, table(0), [table(1) | TABLE])?;
    write_table(memory, table(1), (0..DIRECTORIES).map(|directory| table(2 + directory) | TABLE))?;
    // The directories follow one another, so together they are one table.
    write_table(memory, table(2), (0..DIRECTORIES * ENTRIES).map(|page| page << LARGE_PAGE_SHIFT | LARGE_PAGE))
}

fn write_table(
    memory: &GuestMemoryMmap,
    gpa: u64,
    entries: impl IntoIterator<Item = u64>,
) -> Result<(), GuestMemoryError> {
    let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_le_bytes).collect();
    memory.write_slice(&bytes, GuestAddress(gpa))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_below_4_gib_is_mapped_to_itself() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap();
        write(&memory).unwrap();
        let entry = |table: u64, index: u64| memory.read_obj::<u64>(GuestAddress(table + index * 8)).unwrap();
        for address in [0, 0x7000, 0x100_0200, 0xBFFF_FFFF, 0xFFFF_F000u64] {
            let mut table = layout::PAGE_TABLES;
            for shift in [39, 30] {
                let found = entry(table, address >> shift & 511);
                assert_eq!(found & 0xFFF, TABLE, "{address:#x} at bit {shift}");
                table = found & !0xFFF;
            }
            let page = entry(table, address >> LARGE_PAGE_SHIFT & 511);
            assert_eq!(page, address >> LARGE_PAGE_SHIFT << LARGE_PAGE_SHIFT | LARGE_PAGE, "{address:#x}");
        }
    }

    #[test]
    fn the_tables_end_before_the_command_line() {
        let end = layout::PAGE_TABLES + (2 + DIRECTORIES) * layout::PAGE_SIZE;
        assert!(end <= layout::COMMAND_LINE);
    }
}
