// SPDX-License-Identifier: Apache-2.0
//! Checks an ELF kernel before a byte of it is loaded, then has linux-loader load it.
//!
//! linux-loader reads the segments; it does not look at the machine, nor whether a segment lies on something of ours.
//! A file is untrusted: every number in it is checked here, with one error for each way to be wrong.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::ops::Range;

use linux_loader::elf::{ELFCLASS32, ELFCLASS64, ELFDATA2LSB, EM_386, EM_X86_64, Elf64_Ehdr, Elf64_Phdr, PT_LOAD};
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use linux_loader::loader::{Error as LoaderError, KernelLoader};
use vm_memory::{ByteValued, GuestMemoryMmap, ReadVolatile};

use crate::layout;
use topology::memory_map::MemoryMap;

/// A kernel image that can be read, whatever it lives in.
pub trait KernelImage: Read + ReadVolatile + Seek {}
impl KernelImage for File {}
impl KernelImage for Cursor<&[u8]> {}

/// Most program headers that are looked at: a kernel has fewer than twenty.
const MAX_PROGRAM_HEADERS: u16 = 128;

/// What is wrong with an ELF image.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file ends inside the ELF header or the program headers.
    #[error("it ends inside its {part}: it is truncated")]
    Truncated {
        /// Which part.
        part: &'static str,
    },
    /// Not 64-bit.
    #[error("it is a 32-bit ELF; a 64-bit x86 kernel is wanted")]
    Not64Bit,
    /// A class, byte order or header size that no x86-64 ELF has.
    #[error("its ELF header is damaged: {field} is {value:#x}")]
    Header {
        /// Name of the field in the ELF specification.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Another processor.
    #[error("it is an ELF for machine {machine} (e_machine); an x86-64 kernel ({EM_X86_64}) is wanted")]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// Nothing to load.
    #[error("it has no loadable segment: an object file or a stripped-down debug file, not a kernel")]
    NoSegments,
    /// More program headers than any kernel has.
    #[error("it claims {count} program headers; a kernel has fewer than {MAX_PROGRAM_HEADERS}")]
    TooManySegments {
        /// `e_phnum`.
        count: u16,
    },
    /// A segment is larger in the file than in memory.
    #[error("segment {index} has {file_bytes:#x} bytes in the file but {memory_bytes:#x} in memory")]
    SegmentSizes {
        /// Which program header.
        index: u16,
        /// `p_filesz`.
        file_bytes: u64,
        /// `p_memsz`.
        memory_bytes: u64,
    },
    /// A segment's bytes are beyond the end of the file.
    #[error("segment {index} wants bytes up to {end:#x} of a file of {file_bytes:#x}: it is truncated")]
    SegmentPastFile {
        /// Which program header.
        index: u16,
        /// `p_offset` + `p_filesz`.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// A segment does not lie in RAM.
    #[error("segment {index} at {start:#x}, {bytes:#x} bytes, is not inside the guest's RAM; give it more --memory")]
    SegmentOutsideRam {
        /// Which program header.
        index: u16,
        /// `p_paddr`.
        start: u64,
        /// `p_memsz`.
        bytes: u64,
    },
    /// A segment lies on the tables and parameters that the monitor writes.
    #[error(
        "segment {index} at {start:#x} overlaps the boot tables, which own everything below {:#x}; link the kernel \
         higher",
        layout::HIGH_RAM_START
    )]
    SegmentOnTables {
        /// Which program header.
        index: u16,
        /// `p_paddr`.
        start: u64,
    },
    /// Two segments want the same memory.
    #[error("segments {first} and {second} overlap in memory")]
    SegmentsOverlap {
        /// Which program header.
        first: u16,
        /// Which other.
        second: u16,
    },
    /// The entry point is in no segment.
    #[error("its entry point {entry:#x} is in none of its segments")]
    EntryOutside {
        /// Entry address.
        entry: u64,
    },
    /// Reading failed.
    #[error("reading it failed: {0}")]
    Read(#[source] std::io::Error),
    /// linux-loader found something more.
    #[error("loading it failed: {0}")]
    Load(#[source] LoaderError),
}

/// A kernel in guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedElf {
    /// How it is started.
    pub entry: ElfEntry,
    /// From its first byte to its last, `.bss` included.
    pub taken: Range<u64>,
}

/// The two ways into an ELF kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfEntry {
    /// PVH, which an ELF note announces; preferred where it is there.
    Pvh(u32),
    /// `e_entry`: where a Linux without PVH is entered in 64-bit mode.
    Long(u64),
}

/// Checks and loads an ELF kernel.
///
/// # Errors
/// [`ElfError`]. On an error guest memory may hold part of the image, and nobody has been told to run it.
pub fn load(
    image: &mut impl KernelImage,
    file_bytes: u64,
    map: &MemoryMap,
    memory: &GuestMemoryMmap,
) -> Result<LoadedElf, ElfError> {
    let (header, segments) = check(image, file_bytes, map)?;
    let loaded = Elf::load(memory, None, image, None).map_err(ElfError::Load)?;
    let (entry, address) = match loaded.pvh_boot_cap {
        PvhBootCapability::PvhEntryPresent(address) => (u32::try_from(address.0).ok().map(ElfEntry::Pvh), address.0),
        _ => (Some(ElfEntry::Long(header.e_entry)), header.e_entry),
    };
    let inside = segments.iter().any(|segment| segment.range().contains(&address));
    let entry = entry.filter(|_| inside).ok_or(ElfError::EntryOutside { entry: address })?;
    // Sorted by address, and not empty.
    let start = segments.first().map_or(0, |segment| segment.start);
    let end = segments.last().map_or(0, |segment| segment.range().end);
    Ok(LoadedElf { entry, taken: start..end })
}

/// A loadable segment whose numbers were checked.
#[derive(Clone, Copy, Debug)]
struct Segment {
    index: u16,
    start: u64,
    bytes: u64,
}

impl Segment {
    /// Physical addresses; the sum was checked when the segment was found inside RAM.
    fn range(self) -> Range<u64> {
        self.start..self.start + self.bytes
    }
}

fn check(
    image: &mut impl KernelImage,
    file_bytes: u64,
    map: &MemoryMap,
) -> Result<(Elf64_Ehdr, Vec<Segment>), ElfError> {
    let mut header = Elf64_Ehdr::default();
    image.rewind().map_err(ElfError::Read)?;
    read(image, header.as_mut_slice(), "ELF header")?;
    check_header(&header)?;
    image.seek(std::io::SeekFrom::Start(header.e_phoff)).map_err(ElfError::Read)?;
    let mut segments = Vec::new();
    for index in 0..header.e_phnum {
        let mut program = Elf64_Phdr::default();
        read(image, program.as_mut_slice(), "program headers")?;
        if program.p_type == PT_LOAD && (program.p_memsz > 0 || program.p_filesz > 0) {
            segments.push(check_segment(index, &program, file_bytes, map)?);
        }
    }
    if segments.is_empty() {
        return Err(ElfError::NoSegments);
    }
    segments.sort_by_key(|segment: &Segment| segment.start);
    match segments.windows(2).find(|pair| pair[0].range().end > pair[1].start) {
        Some(pair) => Err(ElfError::SegmentsOverlap { first: pair[0].index, second: pair[1].index }),
        None => Ok((header, segments)),
    }
}

fn read(image: &mut impl KernelImage, bytes: &mut [u8], part: &'static str) -> Result<(), ElfError> {
    image.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => ElfError::Truncated { part },
        _ => ElfError::Read(error),
    })
}

fn check_header(header: &Elf64_Ehdr) -> Result<(), ElfError> {
    /// Index of the class and byte order in `e_ident`.
    const EI_CLASS: usize = 4;
    const EI_DATA: usize = 5;
    let damaged = |field, value: u64| Err(ElfError::Header { field, value });
    match header.e_ident[EI_CLASS] {
        ELFCLASS64 => {}
        ELFCLASS32 => return Err(ElfError::Not64Bit),
        value => return damaged("e_ident[EI_CLASS]", u64::from(value)),
    }
    if header.e_ident[EI_DATA] != ELFDATA2LSB {
        return damaged("e_ident[EI_DATA]", u64::from(header.e_ident[EI_DATA]));
    }
    match header.e_machine {
        EM_X86_64 => {}
        EM_386 => return Err(ElfError::Not64Bit),
        _ => return Err(ElfError::Machine { machine: header.e_machine }),
    }
    if usize::from(header.e_phentsize) != size_of::<Elf64_Phdr>() && header.e_phnum != 0 {
        return damaged("e_phentsize", u64::from(header.e_phentsize));
    }
    if header.e_phnum > MAX_PROGRAM_HEADERS {
        return Err(ElfError::TooManySegments { count: header.e_phnum });
    }
    if header.e_phnum == 0 { Err(ElfError::NoSegments) } else { Ok(()) }
}

fn check_segment(index: u16, program: &Elf64_Phdr, file_bytes: u64, map: &MemoryMap) -> Result<Segment, ElfError> {
    if program.p_filesz > program.p_memsz {
        return Err(ElfError::SegmentSizes { index, file_bytes: program.p_filesz, memory_bytes: program.p_memsz });
    }
    let end = program.p_offset.saturating_add(program.p_filesz);
    if end > file_bytes {
        return Err(ElfError::SegmentPastFile { index, end, file_bytes });
    }
    let segment = Segment { index, start: program.p_paddr, bytes: program.p_memsz };
    if segment.start < layout::HIGH_RAM_START {
        return Err(ElfError::SegmentOnTables { index, start: segment.start });
    }
    let outside = ElfError::SegmentOutsideRam { index, start: segment.start, bytes: segment.bytes };
    let Some(end) = segment.start.checked_add(segment.bytes) else { return Err(outside) };
    if map.holds(&(segment.start..end)) { Ok(segment) } else { Err(outside) }
}
