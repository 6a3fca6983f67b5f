// SPDX-License-Identifier: Apache-2.0
//! Real headers with wrong bytes in them: no loader panics, and none writes outside the RAM of the map or below 1 MiB.
//!
//! The corpus is the setup headers of four Debian kernels (`corpus/*.hex`) and the probe guest's image. What once failed
//! is kept by proptest in `proptest-regressions/`.

use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;
use topology::guest::{GuestTopology, TopologyRequest};
use topology::memory_map::{AddressSpace, MemoryMap};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{bzimage, elf};
use crate::layout;

pub(super) const MIB: u64 = 1 << 20;
/// Memory behind the map's RAM, where nothing may be written.
const GUARD_BYTES: u64 = 2 * MIB;

const CORPUS: [&str; 4] = [
    include_str!("corpus/debian-6.1.hex"),
    include_str!("corpus/debian-6.1-cloud.hex"),
    include_str!("corpus/debian-6.12.hex"),
    include_str!("corpus/debian-6.12-cloud.hex"),
];

/// A map of `bytes` of RAM, and memory that reaches beyond it.
pub(super) fn machine(bytes: u64) -> (MemoryMap, GuestMemoryMmap) {
    let request = TopologyRequest::even(1, 1, bytes).expect("one CPU, one node");
    let topology = GuestTopology::new(&request).expect("one CPU, one node");
    let space = AddressSpace { gap_start: layout::MMIO_GAP_START, gap_end: layout::MMIO_GAP_END, width_bits: 40 };
    let map = MemoryMap::new(&topology, &space).expect("it fits");
    let len = usize::try_from(bytes + GUARD_BYTES).expect("a small machine");
    (map, GuestMemoryMmap::from_ranges(&[(GuestAddress(0), len)]).expect("address space"))
}

/// A small bzImage with the real setup header of Debian's 6.12 cloud kernel.
pub(super) fn bzimage() -> Vec<u8> {
    bzimage_with(CORPUS[3])
}

/// As much code as keeps a test quick; the header's sizes say so.
const CODE_BYTES: usize = 16384;

fn bzimage_with(header: &str) -> Vec<u8> {
    let header: Vec<u8> = header
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
        .collect();
    let mut image = vec![0; (usize::from(header[0]) + 1) * 512];
    image[0x1F1..0x1F1 + header.len()].copy_from_slice(&header);
    image.resize(image.len() + CODE_BYTES, 0xCC);
    let mut set = |offset: usize, value: u32| image[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    set(0x1F4, 1024);
    set(0x24C, 8192);
    image
}

fn is_zero(memory: &GuestMemoryMmap, start: u64, bytes: u64) -> bool {
    let mut content = vec![0xFF; usize::try_from(bytes).expect("small")];
    memory.read_slice(&mut content, GuestAddress(start)).expect("it is memory");
    content.iter().all(|byte| *byte == 0)
}

/// The RAM that a loader must leave alone.
fn untouched(memory: &GuestMemoryMmap, ram_bytes: u64) -> bool {
    is_zero(memory, 0, MIB) && is_zero(memory, ram_bytes, GUARD_BYTES)
}

/// Where to change something and what to put there: often a bit, often an extreme.
fn mutations(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..9),
        Just(vec![0xFF; 4]),
        Just(vec![0xFF; 8]),
        Just(vec![0; 4]),
        Just(vec![0, 0, 0, 0, 0, 0, 0, 0x80]),
    ];
    vec((range, bytes), 1..4)
}

fn apply(image: &mut [u8], mutations: &[(usize, Vec<u8>)]) {
    for (offset, bytes) in mutations {
        let end = (offset + bytes.len()).min(image.len());
        image[*offset..end].copy_from_slice(&bytes[..end - offset]);
    }
}

#[test]
fn every_header_of_the_corpus_is_loaded() {
    for header in CORPUS {
        let image = bzimage_with(header);
        let (map, memory) = machine(128 * MIB);
        let loaded = bzimage::load(&mut Cursor::new(&image[..]), image.len() as u64, &map, &memory);
        assert!(loaded.is_ok(), "{header}: {loaded:?}");
        assert!(untouched(&memory, 128 * MIB));
    }
}

/// linux-loader copies the bytes of a segment whatever it says of its memory.
#[test]
fn a_segment_without_memory_has_no_bytes_in_the_file() {
    /// `p_memsz` of the second program header.
    const MEMORY_BYTES: usize = 64 + 56 + 40;
    let mut image = probe::IMAGE.to_vec();
    image[MEMORY_BYTES..MEMORY_BYTES + 8].fill(0);
    let (map, memory) = machine(32 * MIB);
    let loaded = elf::load(&mut Cursor::new(&image[..]), image.len() as u64, &map, &memory);
    assert!(matches!(loaded, Err(elf::ElfError::SegmentSizes { index: 1, memory_bytes: 0, .. })), "{loaded:?}");
}

proptest! {
    #[test]
    fn a_wrong_bzimage_neither_panics_nor_leaves_its_ram(
        header in 0..CORPUS.len(),
        mutations in mutations(0x1F1..0x26C),
        cut in proptest::option::of(0usize..40_000),
        ram_mib in 1u64..160,
    ) {
        let mut image = bzimage_with(CORPUS[header]);
        apply(&mut image, &mutations);
        image.truncate(cut.unwrap_or(image.len()));
        let (map, memory) = machine(ram_mib * MIB);
        if let Ok(loaded) = bzimage::load(&mut Cursor::new(&image[..]), image.len() as u64, &map, &memory) {
            prop_assert!(map.holds(&loaded.taken) && loaded.taken.contains(&loaded.entry));
        }
        prop_assert!(untouched(&memory, ram_mib * MIB));
    }

    #[test]
    fn a_wrong_elf_neither_panics_nor_leaves_its_ram(
        // The ELF header, the program headers, and the notes and first code behind them.
        mutations in mutations(0..0x400),
        cut in proptest::option::of(0..probe::IMAGE.len()),
        ram_mib in 1u64..32,
    ) {
        let mut image = probe::IMAGE.to_vec();
        apply(&mut image, &mutations);
        image.truncate(cut.unwrap_or(image.len()));
        let (map, memory) = machine(ram_mib * MIB);
        if let Ok(loaded) = elf::load(&mut Cursor::new(&image[..]), image.len() as u64, &map, &memory) {
            prop_assert!(map.holds(&loaded.taken));
        }
        prop_assert!(untouched(&memory, ram_mib * MIB));
    }
}
