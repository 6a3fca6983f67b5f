// SPDX-License-Identifier: Apache-2.0
//! The zero page (`struct boot_params`): what a Linux that is entered in 64-bit mode is told.
//!
//! Source: Documentation/arch/x86/boot.rst and zero-page.rst. Of the setup header only what describes the kernel is
//! taken over from the file; every field that is the loader's to fill is written here, so that a file cannot point the
//! kernel anywhere.

use linux_loader::configurator::linux::LinuxBootConfigurator;
use linux_loader::configurator::{BootConfigurator, BootParams, Error as ConfiguratorError};
use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};
use topology::memory_map::{Region, RegionKind};
use vm_memory::{GuestAddress, GuestMemoryError, GuestMemoryMmap};

use super::initrd::Initrd;
use super::long_mode;
use crate::layout;

/// `type_of_loader` of a loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xFF;
/// `loadflags`: the protected-mode code is at 1 MiB or above.
pub(super) const LOADED_HIGH: u8 = 1;
/// `HdrS`.
pub(super) const HEADER_MAGIC: u32 = 0x5372_6448;
/// Last two bytes of a boot sector.
const BOOT_FLAG: u16 = 0xAA55;
/// E820 types (ACPI 6.5, table 15.6).
const E820_RAM: u32 = 1;
const E820_RESERVED: u32 = 2;

/// The boot information could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ZeroPageError {
    /// More regions than the zero page holds.
    #[error("the memory map has {regions} regions, the zero page holds {room}; use fewer nodes")]
    TooManyRegions {
        /// How many there are.
        regions: usize,
        /// How many there may be.
        room: usize,
    },
    /// Guest memory is too small to hold it.
    #[error("the zero page does not fit into the guest's RAM: {0}; give it more --memory")]
    Write(#[source] ConfiguratorError),
    /// Guest memory is too small for page tables.
    #[error("the boot page tables do not fit into the guest's RAM: {0}; give it more --memory")]
    PageTables(#[source] GuestMemoryError),
}

/// The setup header for an ELF kernel, which brings none.
#[must_use]
pub fn header_of_elf() -> setup_header {
    setup_header { boot_flag: BOOT_FLAG, header: HEADER_MAGIC, loadflags: LOADED_HIGH, ..Default::default() }
}

/// Writes the zero page, and the GDT and page tables that the 64-bit entry point wants; gives the address for RSI. The
/// command line is at [`layout::COMMAND_LINE`] already.
///
/// # Errors
/// [`ZeroPageError`].
pub fn write(
    memory: &GuestMemoryMmap,
    kernel: &setup_header,
    regions: &[Region],
    initrd: Option<Initrd>,
    rsdp: u64,
) -> Result<u64, ZeroPageError> {
    let mut params = boot_params { acpi_rsdp_addr: rsdp, hdr: *kernel, ..Default::default() };
    fill_header(&mut params.hdr);
    fill_initrd(&mut params, initrd);
    let too_many = |room| ZeroPageError::TooManyRegions { regions: regions.len(), room };
    let room = params.e820_table.len();
    params.e820_entries = u8::try_from(regions.len()).map_err(|_| too_many(room))?;
    if regions.len() > room {
        return Err(too_many(room));
    }
    // By value: the table is a packed field.
    let mut table = params.e820_table;
    table.iter_mut().zip(regions).for_each(|(entry, region)| *entry = e820(region));
    params.e820_table = table;
    let params = BootParams::new(&params, GuestAddress(layout::ZERO_PAGE));
    LinuxBootConfigurator::write_bootparams(&params, memory).map_err(ZeroPageError::Write)?;
    long_mode::write(memory).map_err(ZeroPageError::PageTables)?;
    Ok(layout::ZERO_PAGE)
}

/// The fields that boot.rst marks "write" or "modify", and that a file could have filled with anything.
fn fill_header(header: &mut setup_header) {
    header.type_of_loader = LOADER_UNDEFINED;
    header.ext_loader_type = 0;
    header.ext_loader_ver = 0;
    // KEEP_SEGMENTS, QUIET and CAN_USE_HEAP are the loader's choice: none is made.
    header.loadflags = LOADED_HIGH;
    header.cmd_line_ptr = u32::try_from(layout::COMMAND_LINE).unwrap_or(0);
    header.setup_data = 0;
    header.heap_end_ptr = 0;
    header.hardware_subarch = 0;
    header.hardware_subarch_data = 0;
    /// `vid_mode`: leave the display as it is.
    const NORMAL: u16 = 0xFFFF;
    header.vid_mode = NORMAL;
}

#[expect(clippy::cast_possible_truncation, reason = "an address in two halves, as the protocol wants it")]
fn fill_initrd(params: &mut boot_params, initrd: Option<Initrd>) {
    let (start, bytes) = initrd.map_or((0, 0), |initrd| (initrd.start, initrd.bytes));
    params.hdr.ramdisk_image = start as u32;
    params.hdr.ramdisk_size = bytes as u32;
    params.ext_ramdisk_image = (start >> 32) as u32;
    params.ext_ramdisk_size = (bytes >> 32) as u32;
}

fn e820(region: &Region) -> boot_e820_entry {
    let kind = match region.kind {
        RegionKind::Usable => E820_RAM,
        RegionKind::Reserved => E820_RESERVED,
    };
    boot_e820_entry { addr: region.start, size: region.end - region.start, r#type: kind }
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap()
    }

    #[test]
    fn the_loaders_fields_are_never_the_files() {
        let mut lies = header_of_elf();
        lies.setup_data = 0xDEAD_0000;
        lies.hardware_subarch = 2;
        lies.ramdisk_image = 0x1000;
        lies.cmd_line_ptr = 1;
        let memory = memory();
        let regions = [Region { start: 0, end: 0x9_FC00, kind: RegionKind::Usable }];
        let initrd = Initrd { start: 0x1_2345_6000, bytes: 0x1_0000_0007 };
        let gpa = write(&memory, &lies, &regions, Some(initrd), 0xE_0000).unwrap();
        let read = |offset: u64| memory.read_obj::<u32>(GuestAddress(gpa + offset)).unwrap();
        // Offsets of zero-page.rst and boot.rst.
        assert_eq!((read(0x70), read(0x250), read(0x254), read(0x23C)), (0xE_0000, 0, 0, 0));
        assert_eq!((read(0x218), read(0x0C0), read(0x21C), read(0x0C4)), (0x2345_6000, 1, 7, 1));
        assert_eq!((read(0x228), read(0x1E8) & 0xFF, read(0x2D8), read(0x2E0)), (0x2_0000, 1, 0x9_FC00, 1));
    }

    #[test]
    fn too_many_regions_are_refused() {
        let region = Region { start: 0, end: 4096, kind: RegionKind::Usable };
        for count in [129, 300] {
            let error = write(&memory(), &header_of_elf(), &vec![region; count], None, 0).unwrap_err();
            assert!(matches!(error, ZeroPageError::TooManyRegions { room: 128, .. }), "{error}");
        }
        assert!(write(&memory(), &header_of_elf(), &[region; 128], None, 0).is_ok());
    }
}
