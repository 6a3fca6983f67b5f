// SPDX-License-Identifier: Apache-2.0
//! Where each node's memory lies in guest-physical addresses, around the gap that devices use below 4 GiB.
//!
//! SRAT, the E820/PVH memory map and the host memory that backs a guest all read it from here. Nodes follow one
//! another in order; the node that reaches the gap continues behind it. Invariant: ranges ascend, do not touch the gap,
//! and hold every byte of every node exactly once.

use std::ops::Range;

use crate::error::TopologyError;
use crate::guest::{GuestTopology, MAX_MEMORY_BYTES, PAGE_BYTES};
use crate::id::NodeId;

/// The guest-physical address space that memory is laid into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// First address of the device gap, a multiple of the page size above 0.
    pub gap_start: u64,
    /// First address behind the gap, a multiple of the page size.
    pub gap_end: u64,
    /// Bits of a guest-physical address (`CPUID.80000008H:EAX[7:0]`); above 52 counts as 52.
    pub width_bits: u8,
}

/// Contiguous memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamRange {
    /// First guest-physical address, a multiple of the page size.
    pub start: u64,
    /// Length in bytes, whole pages, not 0.
    pub len_bytes: u64,
    /// The node that it belongs to.
    pub node: NodeId,
}

impl RamRange {
    /// First address behind the range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len_bytes
    }
}

/// What a region of the map that firmware hands to a kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory that the kernel may use: E820 type 1.
    Usable,
    /// Addresses that it must leave alone: E820 type 2.
    Reserved,
}

/// A region of the map that firmware hands to a kernel (ACPI 6.5, section 15, "System Address Map Interfaces").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First guest-physical address.
    pub start: u64,
    /// First address behind the region.
    pub end: u64,
    /// What it is for.
    pub kind: RegionKind,
}

/// The memory of a guest by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    ram: Vec<RamRange>,
    space: AddressSpace,
}

impl MemoryMap {
    /// Lays the memory of every node into an address space.
    ///
    /// # Errors
    /// [`TopologyError::BadGap`], [`TopologyError::MemoryBeyondAddressSpace`].
    pub fn new(machine: &GuestTopology, space: &AddressSpace) -> Result<Self, TopologyError> {
        let AddressSpace { gap_start: start, gap_end: end, width_bits } = *space;
        let whole_pages = start.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES);
        if start == 0 || start >= end || end > MAX_MEMORY_BYTES || !whole_pages {
            return Err(TopologyError::BadGap { start, end });
        }
        let ram = lay(machine, space);
        let end = ram.last().map_or(0, RamRange::end);
        if end > 1 << width_bits.min(52) {
            return Err(TopologyError::MemoryBeyondAddressSpace { bytes: machine.memory_bytes(), end, width_bits });
        }
        Ok(Self { ram, space: *space })
    }

    /// The memory, ascending by address.
    #[must_use]
    pub fn ram(&self) -> &[RamRange] {
        &self.ram
    }

    /// The memory of one node, ascending by address.
    pub fn ram_of(&self, node: NodeId) -> impl Iterator<Item = &RamRange> {
        self.ram.iter().filter(move |range| range.node == node)
    }

    /// The address space that it was laid into.
    #[must_use]
    pub const fn address_space(&self) -> &AddressSpace {
        &self.space
    }

    /// First address behind the memory below the gap.
    #[must_use]
    pub fn low_end(&self) -> u64 {
        self.ram.iter().take_while(|range| range.start < self.space.gap_start).last().map_or(0, RamRange::end)
    }

    /// First address behind all memory.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ram.last().map_or(0, RamRange::end)
    }

    /// Total memory in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.ram.iter().map(|range| range.len_bytes).sum()
    }

    /// Whether all of `range` is memory, of whichever nodes. An empty range is.
    #[must_use]
    pub fn holds(&self, range: &Range<u64>) -> bool {
        let inside = |ram: &RamRange| range.end.min(ram.end()).saturating_sub(range.start.max(ram.start));
        self.ram.iter().map(inside).sum::<u64>() == range.end.saturating_sub(range.start)
    }

    /// The map for a kernel: memory without the `reserved` ranges, and those, ascending. Neighbouring memory of
    /// different nodes is one region: the kernel learns the nodes from SRAT. `reserved` may come in any order and
    /// overlap; what of it is not memory is reserved too.
    #[must_use]
    pub fn regions(&self, reserved: &[Range<u64>]) -> Vec<Region> {
        let reserved = merged(reserved.to_vec());
        let usable = merged(self.ram.iter().map(|ram| ram.start..ram.end()).collect());
        let mut regions: Vec<Region> = Vec::new();
        for ram in usable {
            let mut start = ram.start;
            for hole in reserved.iter().filter(|hole| hole.start < ram.end && hole.end > ram.start) {
                regions.push(Region { start, end: hole.start, kind: RegionKind::Usable });
                start = hole.end;
            }
            regions.push(Region { start, end: ram.end, kind: RegionKind::Usable });
        }
        regions.extend(reserved.iter().map(|r| Region { start: r.start, end: r.end, kind: RegionKind::Reserved }));
        regions.retain(|region| region.start < region.end);
        regions.sort_by_key(|region| region.start);
        regions
    }
}

fn lay(machine: &GuestTopology, space: &AddressSpace) -> Vec<RamRange> {
    let mut ram = Vec::new();
    let mut start = 0;
    for node in machine.nodes() {
        let mut left = node.memory_bytes;
        while left > 0 {
            let room = if start < space.gap_start { space.gap_start - start } else { u64::MAX };
            let len_bytes = left.min(room);
            ram.push(RamRange { start, len_bytes, node: node.id });
            left -= len_bytes;
            start += len_bytes;
            if start == space.gap_start {
                start = space.gap_end;
            }
        }
    }
    ram
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guest::{NodeRequest, TopologyRequest};

    const GIB: u64 = 1 << 30;
    const SPACE: AddressSpace = AddressSpace { gap_start: 3 * GIB, gap_end: 4 * GIB, width_bits: 46 };

    fn machine(node_bytes: &[u64]) -> GuestTopology {
        let mut nodes: Vec<NodeRequest> =
            node_bytes.iter().map(|&memory_bytes| NodeRequest { memory_bytes, ..Default::default() }).collect();
        nodes[0].cpus = "0".parse().unwrap();
        GuestTopology::new(&TopologyRequest { cpus: 1, nodes, ..Default::default() }).unwrap()
    }

    fn ram(node_bytes: &[u64]) -> Vec<(u64, u64, u32)> {
        let map = MemoryMap::new(&machine(node_bytes), &SPACE).unwrap();
        map.ram().iter().map(|range| (range.start, range.end(), range.node.0)).collect()
    }

    #[test]
    fn memory_below_the_gap_is_one_range_a_node() {
        assert_eq!(ram(&[GIB, GIB]), [(0, GIB, 0), (GIB, 2 * GIB, 1)]);
        assert_eq!(ram(&[3 * GIB]), [(0, 3 * GIB, 0)], "the gap begins where memory ends");
    }

    #[test]
    fn the_node_that_meets_the_gap_goes_on_behind_it() {
        let want = [(0, 2 * GIB, 0), (2 * GIB, 3 * GIB, 1), (4 * GIB, 5 * GIB, 1), (5 * GIB, 7 * GIB, 2)];
        assert_eq!(ram(&[2 * GIB, 2 * GIB, 2 * GIB]), want);
        assert_eq!(ram(&[3 * GIB, GIB]), [(0, 3 * GIB, 0), (4 * GIB, 5 * GIB, 1)]);
    }

    #[test]
    fn the_width_of_an_address_is_the_limit() {
        let narrow = AddressSpace { width_bits: 33, ..SPACE };
        assert!(MemoryMap::new(&machine(&[7 * GIB]), &narrow).is_ok());
        let (bytes, end) = (7 * GIB + 4096, 8 * GIB + 4096);
        let error = MemoryMap::new(&machine(&[bytes]), &narrow).unwrap_err();
        assert_eq!(error, TopologyError::MemoryBeyondAddressSpace { bytes, end, width_bits: 33 });
    }

    #[test]
    fn a_gap_that_is_none_is_refused() {
        for (gap_start, gap_end) in [(0, GIB), (GIB, GIB), (2 * GIB, GIB), (4095, GIB), (GIB, u64::MAX)] {
            let space = AddressSpace { gap_start, gap_end, width_bits: 46 };
            assert!(matches!(MemoryMap::new(&machine(&[GIB]), &space), Err(TopologyError::BadGap { .. })));
        }
    }

    #[test]
    fn a_kernels_map_has_the_classic_hole() {
        let map = MemoryMap::new(&machine(&[GIB, 3 * GIB]), &SPACE).unwrap();
        let bytes: Vec<(u64, u64, RegionKind)> = map
            .regions(std::slice::from_ref(&(0x9_FC00..0x10_0000)))
            .iter()
            .map(|r| (r.start, r.end, r.kind))
            .collect();
        let (usable, reserved) = (RegionKind::Usable, RegionKind::Reserved);
        let want = [
            (0, 0x9_FC00, usable),
            (0x9_FC00, 0x10_0000, reserved),
            (0x10_0000, 3 * GIB, usable),
            (4 * GIB, 5 * GIB, usable),
        ];
        assert_eq!(bytes, want);
        assert_eq!((map.low_end(), map.end(), map.total_bytes()), (3 * GIB, 5 * GIB, 4 * GIB));
        assert!(map.holds(&(GIB - 1..GIB + 1)) && !map.holds(&(3 * GIB - 1..3 * GIB + 1)));
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_range_of_its_node(pages in proptest::collection::vec(1u64..2_000_000, 1..9)) {
            let machine = machine(&pages.iter().map(|n| n * PAGE_BYTES).collect::<Vec<_>>());
            let map = MemoryMap::new(&machine, &SPACE).unwrap();
            for pair in map.ram().windows(2) {
                prop_assert!(pair[0].end() <= pair[1].start);
            }
            for range in map.ram() {
                prop_assert!(range.end() <= SPACE.gap_start || range.start >= SPACE.gap_end);
            }
            for node in machine.nodes() {
                let bytes: u64 = map.ram_of(node.id).map(|range| range.len_bytes).sum();
                prop_assert_eq!(bytes, node.memory_bytes);
            }
        }

        #[test]
        fn regions_split_memory_into_usable_and_reserved(
            gib in 1u64..8, holes in proptest::collection::vec((0u64..9 * GIB, 1u64..GIB), 0..6),
        ) {
            let map = MemoryMap::new(&machine(&[gib * GIB]), &SPACE).unwrap();
            let holes: Vec<Range<u64>> = holes.iter().map(|&(start, len)| start..start + len).collect();
            let regions = map.regions(&holes);
            for pair in regions.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            for region in &regions {
                let range = region.start..region.end;
                let reserved = holes.iter().any(|hole| hole.start <= range.start && hole.end > range.start);
                prop_assert_eq!(reserved, region.kind == RegionKind::Reserved);
                prop_assert!(reserved || map.holds(&range));
            }
            let covered = regions.iter().map(|r| r.end - r.start).sum::<u64>();
            prop_assert!(covered >= map.total_bytes());
        }
    }
}
