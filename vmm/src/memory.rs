// SPDX-License-Identifier: Apache-2.0
//! The guest's RAM: one anonymous mapping for each range of the memory map, touched by nobody until the guest does.

use std::io;
use std::sync::Arc;

use topology::memory_map::MemoryMap;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// RAM could not be had.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// `mmap` failed.
    #[error(
        "{bytes} bytes of guest RAM at {gpa:#x} cannot be mapped: {source}; ask for less --memory, or raise the \
         address space limit (ulimit -v)"
    )]
    Map {
        /// Guest-physical start.
        gpa: u64,
        /// Length.
        bytes: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The ranges of the map overlap or are out of order.
    #[error("the memory map is inconsistent: {0}")]
    Inconsistent(#[source] vm_memory::GuestRegionCollectionError),
}

/// The guest's RAM, mapped. Cloning shares the mapping.
#[derive(Clone, Debug)]
pub struct GuestRam {
    memory: GuestMemoryMmap,
}

impl GuestRam {
    /// Maps every range of `map`. Nothing is reserved or touched: a guest costs what it uses.
    ///
    /// # Errors
    /// [`MemoryError`]; what was mapped before the failure is unmapped again.
    pub fn map(map: &MemoryMap) -> Result<Self, MemoryError> {
        let regions = map
            .ram()
            .iter()
            .map(|range| map_range(range.start, range.len_bytes).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let memory = GuestMemoryMmap::from_arc_regions(regions).map_err(MemoryError::Inconsistent)?;
        Ok(Self { memory })
    }

    /// The RAM by guest-physical address.
    #[must_use]
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }
}

fn map_range(gpa: u64, bytes: u64) -> Result<GuestRegionMmap, MemoryError> {
    let failed = |source| MemoryError::Map { gpa, bytes, source };
    let len = usize::try_from(bytes).map_err(|_| failed(io::Error::from_raw_os_error(libc::ENOMEM)))?;
    let region = MmapRegionBuilder::new(len)
        .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
        .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)
        .build()
        .map_err(|error| match error {
            vm_memory::mmap::MmapRegionError::Mmap(source) => failed(source),
            _ => failed(io::Error::from_raw_os_error(libc::EINVAL)),
        })?;
    GuestRegionMmap::new(region, GuestAddress(gpa)).ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EOVERFLOW)))
}
