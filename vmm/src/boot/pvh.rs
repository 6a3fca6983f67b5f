// SPDX-License-Identifier: Apache-2.0
//! The PVH boot protocol: what a guest that is entered in 32-bit mode finds in memory.
//!
//! Source: xen/include/public/arch-x86/hvm/start_info.h, version 1 of `hvm_start_info`.

use linux_loader::configurator::pvh::PvhBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams};
use linux_loader::loader::elf::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use topology::memory_map::{Region, RegionKind};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::initrd::Initrd;
use crate::layout;

/// "xEn3" with the high bit of the `E` set.
const START_INFO_MAGIC: u32 = 0x336E_C578;

/// The boot information could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PvhError {
    /// More regions than there is room for.
    #[error(
        "the memory map has {regions} regions, the boot information holds {}; use fewer nodes",
        layout::PVH_MEMORY_MAP_ENTRIES
    )]
    TooManyRegions {
        /// How many there are.
        regions: usize,
    },
    /// Guest memory is too small to hold it.
    #[error("the boot information does not fit into the guest's RAM: {0}; give it more --memory")]
    Write(#[source] linux_loader::configurator::Error),
}

/// Writes `hvm_start_info`, the memory map and the list of modules; gives the address for EBX. The command line is at
/// [`layout::COMMAND_LINE`] already.
///
/// # Errors
/// [`PvhError`].
pub fn write_boot_information(
    memory: &GuestMemoryMmap,
    regions: &[Region],
    initrd: Option<Initrd>,
    rsdp: u64,
) -> Result<u32, PvhError> {
    if regions.len() > layout::PVH_MEMORY_MAP_ENTRIES {
        return Err(PvhError::TooManyRegions { regions: regions.len() });
    }
    let entries: Vec<_> = regions.iter().map(entry).collect();
    let start_info = hvm_start_info {
        magic: START_INFO_MAGIC,
        version: 1,
        cmdline_paddr: layout::COMMAND_LINE,
        nr_modules: u32::from(initrd.is_some()),
        modlist_paddr: initrd.map_or(0, |_| layout::PVH_MODULES),
        rsdp_paddr: rsdp,
        memmap_paddr: layout::PVH_MEMORY_MAP,
        memmap_entries: u32::try_from(entries.len()).unwrap_or(u32::MAX),
        ..Default::default()
    };
    let mut params = BootParams::new(&start_info, GuestAddress(layout::PVH_START_INFO));
    params.set_sections(&entries, GuestAddress(layout::PVH_MEMORY_MAP));
    if let Some(Initrd { start, bytes }) = initrd {
        let module = hvm_modlist_entry { paddr: start, size: bytes, cmdline_paddr: 0, reserved: 0 };
        params.set_modules(&[module], GuestAddress(layout::PVH_MODULES));
    }
    PvhBootConfigurator::write_bootparams(&params, memory).map_err(PvhError::Write)?;
    Ok(u32::try_from(layout::PVH_START_INFO).unwrap_or(u32::MAX))
}

fn entry(region: &Region) -> hvm_memmap_table_entry {
    // The types are those of e820 (ACPI 6.5, table 15.6).
    let type_ = match region.kind {
        RegionKind::Usable => 1,
        RegionKind::Reserved => 2,
    };
    hvm_memmap_table_entry { addr: region.start, size: region.end - region.start, type_, reserved: 0 }
}
