// SPDX-License-Identifier: Apache-2.0
//! Checks the setup header of a bzImage, then has linux-loader load the kernel where it wants to be.
//!
//! Source: Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header" and "64-bit Boot Protocol". linux-loader reads
//! the header and copies the kernel; what the header claims is checked here, with one error for each way to be wrong.

use std::ops::Range;

use linux_loader::loader::bootparam::setup_header;
use linux_loader::loader::{BzImage, Error as LoaderError, KernelLoader};
use topology::memory_map::MemoryMap;
use vm_memory::{Address, ByteValued, GuestAddress, GuestMemoryMmap};

use super::elf::KernelImage;
use super::initrd::Reach;
use super::zero_page::{HEADER_MAGIC, LOADED_HIGH};
use crate::layout;

/// Offset of the setup header in the file.
const HEADER_OFFSET: u64 = 0x1F1;
/// The header ends here plus the byte at 0x201, the operand of its jump.
const HEADER_END_BASE: u64 = 0x202;
/// First byte behind `init_size`, the last field that is needed.
const INIT_SIZE_END: u64 = 0x264;
/// First byte that the zero page does not leave to the header (zero-page.rst, `edd_mbr_sig_buffer`).
const HEADER_ROOM_END: u64 = 0x290;
/// First protocol version with `xloadflags` (Linux 3.8).
const VERSION_MIN: u16 = 0x020C;
/// `xloadflags`: the 64-bit entry point is there.
const XLF_KERNEL_64: u16 = 1;
/// `xloadflags`: kernel, initrd and command line may be above 4 GiB.
const XLF_CAN_BE_LOADED_ABOVE_4G: u16 = 1 << 1;
/// From the start of the protected-mode kernel to its 64-bit entry point.
const ENTRY_64: u64 = 0x200;
const SECTOR_BYTES: u64 = 512;
/// `syssize` counts these.
const PARAGRAPH_BYTES: u64 = 16;

/// What is wrong with a bzImage.
#[derive(Debug, thiserror::Error)]
pub enum BzImageError {
    /// The file ends inside the setup header.
    #[error("it ends inside its setup header: it is truncated")]
    HeaderTruncated,
    /// No `HdrS`.
    #[error("its setup header has no magic number; it is no bzImage")]
    NoMagic,
    /// A header that is shorter than its version demands, or longer than there is room for.
    #[error(
        "its setup header ends at {end:#x}; that is outside {INIT_SIZE_END:#x} to {HEADER_ROOM_END:#x}: it is damaged"
    )]
    HeaderLength {
        /// Offset of its end.
        end: u64,
    },
    /// A kernel that is older than the fields that are needed.
    #[error(
        "it speaks boot protocol {}.{:02}; {}.{:02} (Linux 3.8) or later is wanted", version >> 8, version & 0xFF,
        VERSION_MIN >> 8, VERSION_MIN & 0xFF
    )]
    ProtocolVersion {
        /// `version`.
        version: u16,
    },
    /// A zImage.
    #[error("it is a zImage, which is loaded below 1 MiB; build a bzImage")]
    LoadedLow,
    /// A 32-bit kernel.
    #[error("it has no 64-bit entry point (xloadflags {flags:#x}): a 32-bit kernel; an x86-64 kernel is wanted")]
    No64BitEntry {
        /// `xloadflags`.
        flags: u16,
    },
    /// The real-mode code is as long as the file or longer.
    #[error("its real-mode code takes {setup_bytes:#x} bytes of a file of {file_bytes:#x}: it is truncated")]
    SetupPastFile {
        /// From `setup_sects`.
        setup_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// The protected-mode code, or the payload in it, goes past the end of the file.
    #[error("its {what} goes up to {end:#x} of a file of {file_bytes:#x}: it is truncated")]
    CodePastFile {
        /// Which part.
        what: &'static str,
        /// Offset of the part's end.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// It claims to need less memory than its own file takes.
    #[error(
        "it claims to run in {init_bytes:#x} bytes and has {code_bytes:#x} of code (init_size): its header is damaged"
    )]
    InitSize {
        /// `init_size`.
        init_bytes: u64,
        /// Length of the protected-mode code.
        code_bytes: u64,
    },
    /// An address that is not a multiple of the alignment, or an alignment that is none.
    #[error("it wants to be at {address:#x}, aligned to {alignment:#x}: its header is damaged")]
    Alignment {
        /// `pref_address`.
        address: u64,
        /// `kernel_alignment`.
        alignment: u32,
    },
    /// Its place is the monitor's.
    #[error(
        "it wants to be at {address:#x}; everything below {:#x} is the boot tables'; configure a higher PHYSICAL_START",
        layout::HIGH_RAM_START
    )]
    OnTables {
        /// `pref_address`.
        address: u64,
    },
    /// A kernel that cannot be moved, whose place is not RAM.
    #[error(
        "it cannot be moved (relocatable_kernel is 0) and wants {bytes:#x} bytes at {address:#x}, where the guest has no \
         RAM; build it with CONFIG_RELOCATABLE=y or give the guest more --memory"
    )]
    NotRelocatable {
        /// `pref_address`.
        address: u64,
        /// `init_size`.
        bytes: u64,
    },
    /// Not enough memory to unpack it.
    #[error(
        "it needs {bytes:#x} bytes at {address:#x} to unpack itself, of which not all is RAM; give the guest more \
         --memory"
    )]
    NoRoom {
        /// `pref_address`; a kernel that starts lower moves itself up to it.
        address: u64,
        /// `init_size`.
        bytes: u64,
    },
    /// Reading failed.
    #[error("reading it failed: {0}")]
    Read(#[source] std::io::Error),
    /// linux-loader found something more.
    #[error("loading it failed: {0}")]
    Load(#[source] LoaderError),
}

/// A bzImage in guest memory.
#[derive(Clone, Debug)]
pub struct LoadedBzImage {
    /// Its setup header, cut to its stated length.
    pub header: setup_header,
    /// The 64-bit entry point.
    pub entry: u64,
    /// What it needs until it has a memory map of its own.
    pub taken: Range<u64>,
}

impl LoadedBzImage {
    /// Longest command line that it reads, in bytes without the NUL.
    #[must_use]
    pub fn command_line_limit(&self) -> usize {
        usize::try_from(self.header.cmdline_size).unwrap_or(usize::MAX)
    }

    /// Where it looks for an initial RAM disk.
    #[must_use]
    pub fn initrd_reach(&self) -> Reach {
        // `initrd_addr_max` is the last address, inclusive.
        let low_end = (u64::from(self.header.initrd_addr_max) + 1).min(Reach::BELOW_4G.low_end);
        let flags = self.header.xloadflags;
        Reach { low_end, above_4g: flags & XLF_CAN_BE_LOADED_ABOVE_4G != 0 }
    }
}

/// Checks and loads a bzImage.
///
/// # Errors
/// [`BzImageError`]. On an error guest memory may hold part of the image, and nobody has been told to run it.
pub fn load(
    image: &mut impl KernelImage,
    file_bytes: u64,
    map: &MemoryMap,
    memory: &GuestMemoryMmap,
) -> Result<LoadedBzImage, BzImageError> {
    let header = read_header(image, file_bytes)?;
    check_kind(&header)?;
    check_sizes(&header, file_bytes)?;
    let taken = check_place(&header, map)?;
    let start = GuestAddress(taken.start);
    BzImage::load(memory, Some(start), image, None).map_err(BzImageError::Load)?;
    Ok(LoadedBzImage { header, entry: start.raw_value() + ENTRY_64, taken })
}

/// The header, cut to the length it states.
fn read_header(image: &mut impl KernelImage, file_bytes: u64) -> Result<setup_header, BzImageError> {
    if file_bytes < INIT_SIZE_END {
        return Err(BzImageError::HeaderTruncated);
    }
    let mut header = setup_header::default();
    let size = size_of::<setup_header>().min(usize::try_from(file_bytes - HEADER_OFFSET).unwrap_or(usize::MAX));
    image.seek(std::io::SeekFrom::Start(HEADER_OFFSET)).map_err(BzImageError::Read)?;
    image.read_exact(&mut header.as_mut_slice()[..size]).map_err(BzImageError::Read)?;
    if { header.header } != HEADER_MAGIC {
        return Err(BzImageError::NoMagic);
    }
    let [_, operand] = { header.jump }.to_le_bytes();
    let end = HEADER_END_BASE + u64::from(operand);
    if !(INIT_SIZE_END..=HEADER_ROOM_END).contains(&end) {
        return Err(BzImageError::HeaderLength { end });
    }
    let stated = usize::try_from(end - HEADER_OFFSET).unwrap_or(usize::MAX).min(size_of::<setup_header>());
    header.as_mut_slice()[stated..].fill(0);
    Ok(header)
}

fn check_kind(header: &setup_header) -> Result<(), BzImageError> {
    let (version, flags) = (header.version, header.xloadflags);
    if version < VERSION_MIN {
        return Err(BzImageError::ProtocolVersion { version });
    }
    if header.loadflags & LOADED_HIGH == 0 {
        return Err(BzImageError::LoadedLow);
    }
    if flags & XLF_KERNEL_64 == 0 { Err(BzImageError::No64BitEntry { flags }) } else { Ok(()) }
}

/// What is loaded is the rest of the file behind the real-mode code, and it fits into what the kernel says it needs.
fn check_sizes(header: &setup_header, file_bytes: u64) -> Result<(), BzImageError> {
    /// `setup_sects` 0 stands for this.
    const SETUP_SECTORS_DEFAULT: u8 = 4;
    let sectors = if header.setup_sects == 0 { SETUP_SECTORS_DEFAULT } else { header.setup_sects };
    let setup_bytes = (u64::from(sectors) + 1) * SECTOR_BYTES;
    if setup_bytes + ENTRY_64 >= file_bytes {
        return Err(BzImageError::SetupPastFile { setup_bytes, file_bytes });
    }
    let past = |what, end: u64| Err(BzImageError::CodePastFile { what, end, file_bytes });
    let code_end = setup_bytes + u64::from(header.syssize) * PARAGRAPH_BYTES;
    // The size is rounded up to paragraphs.
    if code_end >= file_bytes + PARAGRAPH_BYTES {
        return past("protected-mode code", code_end);
    }
    let payload_end = setup_bytes + u64::from(header.payload_offset) + u64::from(header.payload_length);
    if payload_end > file_bytes {
        return past("compressed payload", payload_end);
    }
    let (code_bytes, init_bytes) = (file_bytes - setup_bytes, u64::from(header.init_size));
    if init_bytes < code_bytes { Err(BzImageError::InitSize { init_bytes, code_bytes }) } else { Ok(()) }
}

/// Where it goes. A relocatable kernel is put where it would move itself to.
fn check_place(header: &setup_header, map: &MemoryMap) -> Result<Range<u64>, BzImageError> {
    let (address, alignment, bytes) = (header.pref_address, header.kernel_alignment, u64::from(header.init_size));
    if !alignment.is_power_of_two() || !address.is_multiple_of(u64::from(alignment)) {
        return Err(BzImageError::Alignment { address, alignment });
    }
    if address < layout::HIGH_RAM_START {
        return Err(BzImageError::OnTables { address });
    }
    match address.checked_add(bytes).filter(|end| map.holds(&(address..*end)) && *end <= map.low_end()) {
        Some(end) => Ok(address..end),
        None if header.relocatable_kernel == 0 => Err(BzImageError::NotRelocatable { address, bytes }),
        None => Err(BzImageError::NoRoom { address, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::mutation_tests::{MIB, bzimage, machine};
    use super::*;

    fn load_bytes(bytes: &[u8]) -> Result<LoadedBzImage, BzImageError> {
        let (map, memory) = machine(256 * MIB);
        load(&mut Cursor::new(bytes), bytes.len() as u64, &map, &memory)
    }

    /// The error for a real kernel with bytes of its header changed.
    fn complaint(offset: usize, bytes: &[u8]) -> String {
        let mut image = bzimage();
        image[offset..offset + bytes.len()].copy_from_slice(bytes);
        load_bytes(&image).expect_err("a lie").to_string()
    }

    #[test]
    fn a_real_header_is_believed() {
        let loaded = load_bytes(&bzimage()).unwrap();
        assert_eq!((loaded.entry, loaded.taken.clone()), (0x100_0200, 0x100_0000..0x47D_C000));
        assert_eq!(loaded.command_line_limit(), 2047);
        assert_eq!(loaded.initrd_reach(), Reach { low_end: 0x8000_0000, above_4g: true });
    }

    #[test]
    fn each_lie_has_its_own_error() {
        // Offsets of boot.rst, "Details of Header Fields".
        for (offset, bytes, part) in [
            (0x1F1, &[0xFF][..], "real-mode code takes"),
            (0x1F4, &[0xFF; 4], "protected-mode code goes up to"),
            (0x248, &[0xFF; 4], "compressed payload goes up to"),
            (0x24C, &[0xFF; 4], "compressed payload goes up to"),
            (0x201, &[0x10], "setup header ends at 0x212"),
            (0x201, &[0xFF], "setup header ends at 0x301"),
            (0x202, b"HdrT", "no magic number"),
            (0x206, &[0x0B, 0x02], "boot protocol 2.11; 2.12"),
            (0x211, &[0], "zImage"),
            (0x236, &[0, 0], "no 64-bit entry point"),
            (0x260, &[0, 1, 0, 0], "init_size"),
            (0x230, &[0, 0, 0, 3], "aligned to 0x3000000"),
            (0x258, &[0; 8], "wants to be at 0x0"),
            (0x258, &[0, 0, 0, 0, 0, 0, 0, 0x80], "it needs"),
            (0x258, &[0, 0, 0xE0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "it needs"),
        ] {
            let text = complaint(offset, bytes);
            assert!(text.contains(part), "{offset:#x}: {text} should say {part}");
        }
    }

    #[test]
    fn a_kernel_that_cannot_be_moved_is_told_so_where_its_place_is_no_ram() {
        let mut image = bzimage();
        image[0x234] = 0;
        assert!(load_bytes(&image).is_ok());
        image[0x25B] = 0x40;
        assert!(matches!(load_bytes(&image), Err(BzImageError::NotRelocatable { address: 0x4000_0000, .. })));
    }

    #[test]
    fn a_truncated_file_is_told_so_at_any_length() {
        let image = bzimage();
        for length in [0, 0x1F0, 0x202, 0x263, 0x264, 512, 4096, 20480, image.len() / 2 + 10240, image.len() - 16] {
            let text = load_bytes(&image[..length]).expect_err("truncated").to_string();
            assert!(text.contains("truncated"), "{length}: {text}");
        }
    }
}
