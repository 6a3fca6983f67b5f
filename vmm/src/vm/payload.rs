// SPDX-License-Identifier: Apache-2.0
//! What the guest runs: found out, checked, loaded, and told where it is.
//!
//! Every kernel goes the same way: the image to its place, the command line, the initial RAM disk, then what its boot
//! protocol wants to find, then the registers that the boot processor starts with.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use topology::memory_map::{MemoryMap, Region};
use vm_memory::{GuestMemoryError, GuestMemoryMmap};

use super::tables::BuiltTables;
use crate::boot::bzimage::{self, BzImageError, LoadedBzImage};
use crate::boot::command_line::{self, CommandLineError};
use crate::boot::elf::{self, ElfEntry, ElfError, LoadedElf};
use crate::boot::image::{self, Foreign, ImageKind};
use crate::boot::initrd::{self, Initrd, InitrdError, Reach};
use crate::boot::pvh::{self, PvhError};
use crate::boot::reset_vector;
use crate::boot::zero_page::{self, ZeroPageError};
use crate::config::Boot;
use crate::kvm::vcpu::EntryState;
use crate::layout;
use crate::memory::GuestRam;

/// The payload could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// Guest memory ends below 1 MiB.
    #[error("the reset vector does not fit into the guest's RAM: {0}; give it more --memory")]
    ResetVector(#[source] GuestMemoryError),
    /// The file cannot be opened or read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Not a regular file.
    #[error("{}: is a {what}; name {wanted}", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
        /// What is wanted.
        wanted: &'static str,
    },
    /// Nothing in it.
    #[error("{}: is empty; name {wanted}", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
        /// What is wanted.
        wanted: &'static str,
    },
    /// Something else than a kernel.
    #[error("{}: is {foreign}; wanted: a bzImage or an ELF kernel (vmlinux)", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        foreign: Foreign,
    },
    /// The bzImage is faulty or unfit.
    #[error("{}: {source}", path.display())]
    BzImage {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: BzImageError,
    },
    /// The ELF is faulty or unfit.
    #[error("{name}: {source}")]
    Elf {
        /// Which image.
        name: String,
        /// What is wrong.
        source: ElfError,
    },
    /// The kernel's memory is where the ACPI tables are.
    #[error(
        "{name}: it takes {:#x} to {:#x}, and the ACPI tables of this machine are at {:#x} to {:#x}, the top of the RAM \
         below the MMIO gap; give the guest more --memory",
        taken.start, taken.end, tables.start, tables.end
    )]
    OnTables {
        /// Which image.
        name: String,
        /// What the kernel takes.
        taken: Range<u64>,
        /// What the tables take.
        tables: Range<u64>,
    },
    /// The initial RAM disk.
    #[error("initrd {}: {source}", path.display())]
    Initrd {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: InitrdError,
    },
    /// The command line.
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    /// The boot information of PVH.
    #[error(transparent)]
    Pvh(#[from] PvhError),
    /// The boot information of the 64-bit boot protocol.
    #[error(transparent)]
    ZeroPage(#[from] ZeroPageError),
}

/// What a file that is opened here is to be, for the error that says it is not.
const KERNEL: &str = "a kernel image";
const INITRD: &str = "an initial RAM disk";

/// Loads what the machine boots and says how it is entered.
///
/// # Errors
/// [`PayloadError`].
pub fn load(boot: &Boot, map: &MemoryMap, ram: &GuestRam, tables: &BuiltTables) -> Result<EntryState, PayloadError> {
    let legacy_hole = layout::LOW_RAM_END..layout::HIGH_RAM_START;
    let regions = map.regions(&[legacy_hole, tables.reserved.clone()]);
    let (memory, rsdp) = (ram.memory(), tables.acpi.rsdp_gpa);
    reset_vector::write(memory).map_err(PayloadError::ResetVector)?;
    let loader = Loader { map, memory, regions: &regions, tables: &tables.reserved, rsdp };
    match boot {
        Boot::Probe { workload } => loader.probe(workload),
        Boot::Kernel { image, initrd, command_line } => {
            loader.kernel(image)?.boot(&loader, initrd.as_deref(), command_line)
        }
    }
}

/// Where things are loaded to.
struct Loader<'a> {
    map: &'a MemoryMap,
    memory: &'a GuestMemoryMmap,
    regions: &'a [Region],
    tables: &'a Range<u64>,
    rsdp: u64,
}

/// A kernel that is in guest memory.
enum Kernel {
    BzImage(LoadedBzImage),
    Elf(LoadedElf),
}

impl Loader<'_> {
    fn probe(&self, workload: &str) -> Result<EntryState, PayloadError> {
        let name = || "the built-in probe guest".to_owned();
        let loaded = elf::load(&mut Cursor::new(probe::IMAGE), probe::IMAGE.len() as u64, self.map, self.memory)
            .map_err(|source| PayloadError::Elf { name: name(), source })?;
        clear_of(self.tables, &loaded.taken, name)?;
        command_line::write(self.memory, workload, usize::MAX)?;
        self.enter_elf(&loaded, None)
    }

    /// Finds out what a file is and loads it.
    fn kernel(&self, path: &Path) -> Result<Kernel, PayloadError> {
        let (mut file, bytes) = open(path, KERNEL)?;
        match identify(path, &file)? {
            ImageKind::BzImage => bzimage::load(&mut file, bytes, self.map, self.memory)
                .map(Kernel::BzImage)
                .map_err(|source| PayloadError::BzImage { path: path.to_owned(), source }),
            ImageKind::Elf => elf::load(&mut file, bytes, self.map, self.memory)
                .map(Kernel::Elf)
                .map_err(|source| PayloadError::Elf { name: path.display().to_string(), source }),
            ImageKind::Foreign(foreign) => Err(PayloadError::Foreign { path: path.to_owned(), foreign }),
        }
        .and_then(|kernel| {
            clear_of(self.tables, kernel.room().0, || path.display().to_string())?;
            Ok(kernel)
        })
    }

    fn initrd(&self, path: &Path, kernel: &Range<u64>, reach: Reach) -> Result<Initrd, PayloadError> {
        let (mut file, bytes) = open(path, INITRD)?;
        let wrong = |source| PayloadError::Initrd { path: path.to_owned(), source };
        let initrd = initrd::place(bytes, self.regions, kernel, reach).map_err(wrong)?;
        initrd::load(&mut file, initrd, self.memory).map_err(wrong)?;
        Ok(initrd)
    }

    fn enter_elf(&self, kernel: &LoadedElf, initrd: Option<Initrd>) -> Result<EntryState, PayloadError> {
        Ok(match kernel.entry {
            ElfEntry::Pvh(entry) => {
                let start_info = pvh::write_boot_information(self.memory, self.regions, initrd, self.rsdp)?;
                EntryState::Pvh { entry, start_info }
            }
            ElfEntry::Long(entry) => {
                let header = zero_page::header_of_elf();
                let boot_params = zero_page::write(self.memory, &header, self.regions, initrd, self.rsdp)?;
                EntryState::Long { entry, boot_params }
            }
        })
    }
}

impl Kernel {
    fn boot(self, loader: &Loader<'_>, initrd: Option<&Path>, text: &str) -> Result<EntryState, PayloadError> {
        command_line::write(loader.memory, text, self.command_line_limit())?;
        let (taken, reach) = self.room();
        let initrd = initrd.map(|path| loader.initrd(path, taken, reach)).transpose()?;
        match &self {
            Self::Elf(kernel) => loader.enter_elf(kernel, initrd),
            Self::BzImage(kernel) => {
                let boot_params = zero_page::write(loader.memory, &kernel.header, loader.regions, initrd, loader.rsdp)?;
                Ok(EntryState::Long { entry: kernel.entry, boot_params })
            }
        }
    }

    fn command_line_limit(&self) -> usize {
        match self {
            Self::BzImage(kernel) => kernel.command_line_limit(),
            Self::Elf(_) => command_line::LINUX_DEFAULT_BYTES,
        }
    }

    /// What the kernel takes, and where it looks for an initial RAM disk. An ELF states no reach; PVH has 32 bits for it
    /// in Linux (arch/x86/platform/pvh/enlighten.c).
    fn room(&self) -> (&Range<u64>, Reach) {
        match self {
            Self::BzImage(kernel) => (&kernel.taken, kernel.initrd_reach()),
            Self::Elf(kernel) => (&kernel.taken, Reach::BELOW_4G),
        }
    }
}

/// The loaders know that all below 1 MiB is the tables'; that these may have gone to the top of low RAM is known here.
fn clear_of(tables: &Range<u64>, taken: &Range<u64>, name: impl Fn() -> String) -> Result<(), PayloadError> {
    if taken.start < tables.end && tables.start < taken.end {
        return Err(PayloadError::OnTables { name: name(), taken: taken.clone(), tables: tables.clone() });
    }
    Ok(())
}

/// Opens a file that is a file and is not empty; gives its length too.
fn open(path: &Path, wanted: &'static str) -> Result<(File, u64), PayloadError> {
    let unreadable = |source| PayloadError::Read { path: path.to_owned(), source };
    // Looked at before it is opened: opening a FIFO would wait for a writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "directory" } else { "device, pipe or socket" };
        return Err(PayloadError::NotAFile { path: path.to_owned(), what, wanted });
    }
    if metadata.len() == 0 {
        return Err(PayloadError::Empty { path: path.to_owned(), wanted });
    }
    Ok((File::open(path).map_err(unreadable)?, metadata.len()))
}

fn identify(path: &Path, file: &File) -> Result<ImageKind, PayloadError> {
    let mut head = Vec::with_capacity(image::MAGIC_BYTES);
    file.take(image::MAGIC_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|source| PayloadError::Read { path: path.to_owned(), source })?;
    Ok(image::identify(&head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_reaches_into_the_tables_is_told_where_they_are() {
        let tables = 0x47D_0000..0x480_0000;
        let name = || "vmlinux".to_owned();
        clear_of(&tables, &(0x100_0000..0x47D_0000), name).unwrap();
        clear_of(&tables, &(0x480_0000..0x490_0000), name).unwrap();
        let error = clear_of(&tables, &(0x100_0000..0x47D_0001), name).unwrap_err().to_string();
        assert!(error.starts_with("vmlinux: it takes 0x1000000 to 0x47d0001"), "{error}");
        assert!(error.contains("0x47d0000 to 0x4800000") && error.contains("--memory"), "{error}");
    }
}
