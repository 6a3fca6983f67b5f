// SPDX-License-Identifier: Apache-2.0
//! The initial RAM disk: as high as the kernel can reach, clear of the kernel and of what is reserved.
//!
//! Below 4 GiB while it fits; above only when it must be and the kernel says that it looks there. The invariant: the
//! bytes lie in one usable region of the map that the kernel is handed.

use std::fs::File;
use std::ops::Range;

use topology::memory_map::{Region, RegionKind};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use crate::layout;

/// Where a kernel looks for its initial RAM disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// First address that is too high, of those below 4 GiB.
    pub low_end: u64,
    /// Whether it may lie above 4 GiB too.
    pub above_4g: bool,
}

impl Reach {
    /// All below 4 GiB.
    pub const BELOW_4G: Self = Self { low_end: 1 << 32, above_4g: false };
}

/// An initial RAM disk in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initrd {
    /// Guest-physical address, page aligned.
    pub start: u64,
    /// Length in bytes, above 0.
    pub bytes: u64,
}

/// The initial RAM disk could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum InitrdError {
    /// Larger than what is free where the kernel can reach it.
    #[error(
        "it has {bytes:#x} bytes; the largest free piece of RAM that this kernel reaches has {room:#x}; give the guest \
         more --memory or use a smaller initrd"
    )]
    TooBig {
        /// Length of the file.
        bytes: u64,
        /// Largest free piece.
        room: u64,
    },
    /// The file could not be read into guest memory.
    #[error("reading it into guest memory failed: {0}; was it changed meanwhile?")]
    Read(#[source] GuestMemoryError),
}

/// Finds the highest place for `bytes` bytes that is usable, is not the kernel's, and is within reach.
///
/// # Errors
/// [`InitrdError::TooBig`].
pub fn place(bytes: u64, regions: &[Region], kernel: &Range<u64>, reach: Reach) -> Result<Initrd, InitrdError> {
    const FOUR_GIB: u64 = 1 << 32;
    let free: Vec<Range<u64>> = regions
        .iter()
        .filter(|region| region.kind == RegionKind::Usable)
        .flat_map(|region| [region.start..region.end.min(kernel.start), region.start.max(kernel.end)..region.end])
        .map(|range| whole_pages(&range))
        .collect();
    let low = free.iter().map(|range| range.start.max(layout::HIGH_RAM_START)..range.end.min(reach.low_end));
    let high = free.iter().filter(|_| reach.above_4g).map(|range| range.start.max(FOUR_GIB)..range.end);
    let mut room = 0;
    for pieces in [low.collect::<Vec<_>>(), high.collect()] {
        for piece in pieces.into_iter().rev() {
            let size = piece.end.saturating_sub(piece.start);
            room = room.max(size);
            if let Some(offset) = size.checked_sub(bytes) {
                let start = (piece.start + offset) / layout::PAGE_SIZE * layout::PAGE_SIZE;
                return Ok(Initrd { start, bytes });
            }
        }
    }
    Err(InitrdError::TooBig { bytes, room })
}

fn whole_pages(range: &Range<u64>) -> Range<u64> {
    // No region comes near the end of the address space, so the sum does not overflow.
    range.start.next_multiple_of(layout::PAGE_SIZE)..range.end / layout::PAGE_SIZE * layout::PAGE_SIZE
}

/// Reads the file to its place.
///
/// # Errors
/// [`InitrdError::Read`].
pub fn load(file: &mut File, initrd: Initrd, memory: &GuestMemoryMmap) -> Result<(), InitrdError> {
    let bytes = usize::try_from(initrd.bytes).unwrap_or(usize::MAX);
    memory.read_exact_volatile_from(GuestAddress(initrd.start), file, bytes).map_err(InitrdError::Read)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn usable(start: u64, end: u64) -> Region {
        Region { start, end, kind: RegionKind::Usable }
    }

    fn machine() -> Vec<Region> {
        let reserved = Region { start: layout::LOW_RAM_END, end: MIB, kind: RegionKind::Reserved };
        vec![usable(0, layout::LOW_RAM_END), reserved, usable(MIB, 3 * GIB), usable(4 * GIB, 8 * GIB)]
    }

    const KERNEL: Range<u64> = 16 * MIB..64 * MIB;

    #[test]
    fn as_high_as_the_kernel_reaches() {
        let start = |bytes, low_end, above_4g| {
            place(bytes, &machine(), &KERNEL, Reach { low_end, above_4g }).map(|initrd| initrd.start).ok()
        };
        assert_eq!(start(5 * MIB + 1, 0x8000_0000, false), Some(0x8000_0000 - 5 * MIB - 4096));
        assert_eq!(start(5 * MIB, 1 << 32, false), Some(3 * GIB - 5 * MIB));
        // Only below the kernel, then only above 4 GiB.
        assert_eq!(start(10 * MIB, 64 * MIB, false), Some(6 * MIB));
        assert_eq!(start(20 * MIB, 64 * MIB, true), Some(8 * GIB - 20 * MIB));
        assert_eq!(start(20 * MIB, 64 * MIB, false), None);
    }

    #[test]
    fn what_does_not_fit_is_told_how_much_would() {
        let error = place(8 * GIB, &machine(), &KERNEL, Reach::BELOW_4G).unwrap_err();
        assert!(matches!(error, InitrdError::TooBig { room, .. } if room == 3 * GIB - 64 * MIB), "{error}");
    }

    proptest! {
        #[test]
        fn a_place_is_usable_in_reach_and_not_the_kernels(
            bytes in 1..9 * GIB,
            low_end in any::<u64>(),
            above_4g in any::<bool>(),
            start in 0..4 * GIB,
            len in 0..GIB,
        ) {
            let kernel = start..start + len;
            let Ok(found) = place(bytes, &machine(), &kernel, Reach { low_end, above_4g }) else { return Ok(()) };
            let end = found.start + found.bytes;
            let inside = |region: &Region| {
                region.kind == RegionKind::Usable && region.start <= found.start && end <= region.end
            };
            prop_assert!(machine().iter().any(inside));
            prop_assert!(found.start >= kernel.end || end <= kernel.start);
            prop_assert!(end <= low_end.min(1 << 32) || above_4g && found.start >= 4 * GIB || end <= low_end);
        }
    }
}
