// SPDX-License-Identifier: Apache-2.0
//! Hostile ELF images: the probe guest's own with fields overwritten, bytes flipped and its end cut off.
//!
//! Whatever the loader makes of them, it does not panic, and it writes nowhere but where a segment may be.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and its helpers are part of it")]

use std::io::Cursor;
use std::sync::LazyLock;

use proptest::prelude::*;
use topology::guest::{GuestTopology, TopologyRequest};
use topology::memory_map::{AddressSpace, MemoryMap};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm::boot::elf::{self, ElfEntry, LoadedElf};
use vmm::layout;

const MEMORY_BYTES: usize = 8 << 20;
/// What memory holds that nobody wrote to.
const UNTOUCHED: u8 = 0xA5;
/// `Elf64_Ehdr` and the program headers right behind it.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

static MAP: LazyLock<MemoryMap> = LazyLock::new(|| {
    let machine = GuestTopology::new(&TopologyRequest::even(1, 1, MEMORY_BYTES as u64).unwrap()).unwrap();
    let space = AddressSpace { gap_start: layout::MMIO_GAP_START, gap_end: layout::MMIO_GAP_END, width_bits: 46 };
    MemoryMap::new(&machine, &space).unwrap()
});

static BLANK: LazyLock<Vec<u8>> = LazyLock::new(|| vec![UNTOUCHED; MEMORY_BYTES]);

/// Loads an image and gives what became of memory.
fn load(image: &[u8]) -> (Result<LoadedElf, elf::ElfError>, Vec<u8>) {
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
    memory.write_slice(&BLANK, GuestAddress(0)).unwrap();
    let loaded = elf::load(&mut Cursor::new(image), image.len() as u64, &MAP, &memory);
    let mut after = vec![0; MEMORY_BYTES];
    memory.read_slice(&mut after, GuestAddress(0)).unwrap();
    (loaded, after)
}

/// The end of what a kernel takes, and where it is entered.
fn end_and_entry(loaded: &LoadedElf) -> (usize, usize) {
    let entry = match loaded.entry {
        ElfEntry::Pvh(entry) => u64::from(entry),
        ElfEntry::Long(entry) => entry,
    };
    (usize::try_from(loaded.taken.end).unwrap(), usize::try_from(entry).unwrap())
}

/// Numbers at which sums and comparisons go wrong, and any others.
fn number() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 0xFFF, 0x1000, 0xF_FFFF, 0x10_0000, 0x7F_F000, 0x80_0000, 0xC000_0000, 1 << 32, 1 << 63];
    prop_oneof![
        proptest::sample::select(edges.to_vec()),
        proptest::sample::select(edges.map(|edge| 0u64.wrapping_sub(edge)).to_vec()),
        any::<u64>(),
        0..(MEMORY_BYTES as u64 + 0x1000),
    ]
}

/// A place in the headers and what to write there.
fn change() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let count = usize::from(u16::from_le_bytes([probe::IMAGE[56], probe::IMAGE[57]]));
    let end = HEADER_BYTES + count * PROGRAM_HEADER_BYTES;
    // 64-bit fields of a program header: offset, virtual and physical address, sizes, alignment.
    let field = (0..count, proptest::sample::select(vec![8usize, 16, 24, 32, 40, 48]))
        .prop_map(|(header, field)| HEADER_BYTES + header * PROGRAM_HEADER_BYTES + field);
    prop_oneof![
        (field, number()).prop_map(|(at, value)| (at, value.to_le_bytes().to_vec())),
        // `e_entry` and `e_phoff`.
        (proptest::sample::select(vec![24usize, 32]), number())
            .prop_map(|(at, value)| (at, value.to_le_bytes().to_vec())),
        (0..end, any::<u8>()).prop_map(|(at, byte)| (at, vec![byte])),
        (0..probe::IMAGE.len(), any::<u8>()).prop_map(|(at, byte)| (at, vec![byte])),
    ]
}

#[test]
fn the_image_itself_is_loaded_and_nothing_else_is_touched() {
    let (loaded, after) = load(probe::IMAGE);
    let (end, entry) = end_and_entry(&loaded.unwrap());
    let low = usize::try_from(layout::HIGH_RAM_START).unwrap();
    assert!((low..end).contains(&entry));
    assert!(after[low..end].iter().any(|byte| *byte != UNTOUCHED));
    assert!(after[..low] == BLANK[..low] && after[end..] == BLANK[end..]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_hostile_image_neither_panics_nor_writes_below_kernels_nor_behind_its_end(
        changes in proptest::collection::vec(change(), 1..6),
        length in prop_oneof![4 => Just(probe::IMAGE.len()), 1 => 0..probe::IMAGE.len()],
    ) {
        let mut image = probe::IMAGE.to_vec();
        for (at, bytes) in changes {
            let end = image.len().min(at + bytes.len());
            image[at..end].copy_from_slice(&bytes[..end - at]);
        }
        image.truncate(length);
        let (loaded, after) = load(&image);
        let low = usize::try_from(layout::HIGH_RAM_START).unwrap();
        prop_assert!(after[..low] == BLANK[..low], "wrote below {low:#x}");
        if let Ok(loaded) = loaded {
            let (end, entry) = end_and_entry(&loaded);
            prop_assert!(end <= MEMORY_BYTES && (low..end).contains(&entry));
            prop_assert!(after[end..] == BLANK[end..], "wrote behind {end:#x}");
        }
    }

    #[test]
    fn any_bytes_behind_an_elf_header_are_borne(tail in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let mut image = probe::IMAGE[..HEADER_BYTES].to_vec();
        image.extend(tail);
        let (_, after) = load(&image);
        let low = usize::try_from(layout::HIGH_RAM_START).unwrap();
        prop_assert!(after[..low] == BLANK[..low]);
    }
}
