// SPDX-License-Identifier: Apache-2.0
//! The guest's RAM: one anonymous mapping for each range of the memory map, touched by nobody until the guest does.
//!
//! Pages from a pool of huge pages are reserved when they are mapped, so that the guest never finds the pool empty.

use std::io;
use std::sync::Arc;

use topology::memory_map::MemoryMap;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap};

use crate::config::HugePages;
use crate::host::huge_pages::{self, Advice, Pool};
use crate::host::numa_memory::Span;
use crate::host::sysfs;

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
    /// The pool has too few huge pages.
    #[error(
        "--hugepages {pages}: {needed} pages are needed and {free} of the {pool} in the host's pool are free ({source}); \
         write a larger number to {file}, or use --hugepages thp"
    )]
    TooFewHugePages {
        /// As given.
        pages: HugePages,
        /// Pages for all of the guest's RAM.
        needed: u64,
        /// Pages that are neither used nor promised.
        free: u64,
        /// Pages in the pool.
        pool: u64,
        /// Where its size is set.
        file: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The host has no pages of this size.
    #[error(
        "--hugepages {pages}: this host has no pages of that size ({file} is not there); use --hugepages thp or none"
    )]
    NoSuchPages {
        /// As given.
        pages: HugePages,
        /// What shows it.
        file: String,
    },
    /// Transparent huge pages are switched off, or small pages cannot be asked for.
    #[error("--hugepages {pages}: the host refuses: {reason}; leave --hugepages out to take what it does by itself")]
    Advice {
        /// As given.
        pages: HugePages,
        /// Why.
        reason: String,
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
    /// Maps every range of `map`, in pages of the given kind if one was asked for. Nothing is touched, and but for pages of
    /// a pool nothing is reserved: a guest costs what it uses.
    ///
    /// # Errors
    /// [`MemoryError`]; what was mapped before the failure is unmapped again.
    pub fn map(map: &MemoryMap, pages: Option<HugePages>) -> Result<Self, MemoryError> {
        if pages == Some(HugePages::Thp) {
            let refused = |reason| MemoryError::Advice { pages: HugePages::Thp, reason };
            huge_pages::transparent(&sysfs::read_small).map_err(refused)?;
        }
        let needed_bytes = map.ram().iter().map(|range| range.len_bytes).sum();
        let regions = map
            .ram()
            .iter()
            .map(|range| map_range(range.start, range.len_bytes, pages, needed_bytes).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let memory = GuestMemoryMmap::from_arc_regions(regions).map_err(MemoryError::Inconsistent)?;
        let ram = Self { memory };
        ram.advise(pages)?;
        Ok(ram)
    }

    /// The RAM by guest-physical address.
    #[must_use]
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Where it is in this process, in the order of the memory map.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        // A region of this process fits its address space.
        let bytes = |len| usize::try_from(len).unwrap_or(usize::MAX);
        self.memory.iter().map(move |region| Span { start: region.as_ptr() as usize, bytes: bytes(region.len()) })
    }

    fn advise(&self, pages: Option<HugePages>) -> Result<(), MemoryError> {
        let (pages, advice) = match pages {
            Some(pages @ HugePages::Thp) => (pages, Advice::Huge),
            Some(pages @ HugePages::None) => (pages, Advice::Small),
            Some(HugePages::Pool2M | HugePages::Pool1G) | None => return Ok(()),
        };
        match self.spans().try_for_each(|span| huge_pages::advise(span, advice)) {
            // A kernel that does not know the request has no pages but small ones.
            Err(error) if pages == HugePages::None && error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            advised => advised.map_err(|error| MemoryError::Advice { pages, reason: error.to_string() }),
        }
    }
}

fn map_range(gpa: u64, bytes: u64, pages: Option<HugePages>, needed: u64) -> Result<GuestRegionMmap, MemoryError> {
    let pool = pages.and_then(|pages| Some((pages, pages.pool_page_bytes()?)));
    let failed = |source| match pool {
        Some((pages, page_bytes)) => no_huge_pages(pages, page_bytes, needed, source),
        None => MemoryError::Map { gpa, bytes, source },
    };
    // The size of a page stands in the flags as its binary logarithm (mmap(2), MAP_HUGETLB). Pages of a pool are reserved
    // with the mapping; others are not, since no guest uses all of its RAM at once.
    let kind = pool.map_or(libc::MAP_NORESERVE, |(_, page_bytes)| {
        libc::MAP_HUGETLB | (page_bytes.trailing_zeros().cast_signed() << libc::MAP_HUGE_SHIFT)
    });
    let len = usize::try_from(bytes).map_err(|_| failed(io::Error::from_raw_os_error(libc::ENOMEM)))?;
    let region = MmapRegionBuilder::new(len)
        .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
        .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | kind)
        .build()
        .map_err(|error| match error {
            vm_memory::mmap::MmapRegionError::Mmap(source) => failed(source),
            _ => failed(io::Error::from_raw_os_error(libc::EINVAL)),
        })?;
    GuestRegionMmap::new(region, GuestAddress(gpa)).ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EOVERFLOW)))
}

/// Why there are no pages of a pool, with what the pool has now.
fn no_huge_pages(pages: HugePages, page_bytes: u64, needed_bytes: u64, source: io::Error) -> MemoryError {
    let file = huge_pages::pool_file(page_bytes);
    match huge_pages::pool(&sysfs::read_small, page_bytes) {
        None => MemoryError::NoSuchPages { pages, file },
        Some(Pool { pages: pool, free, surplus }) => {
            let needed = needed_bytes.div_ceil(page_bytes);
            MemoryError::TooFewHugePages { pages, needed, free: free + surplus, pool, file, source }
        }
    }
}
