// SPDX-License-Identifier: Apache-2.0
//! What the guest runs: found out, checked, loaded, and told where it is.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use topology::memory_map::MemoryMap;

use super::tables::BuiltTables;
use crate::boot::elf::{self, ElfError, KernelImage};
use crate::boot::image::{self, Foreign, ImageKind};
use crate::boot::pvh::{self, PvhError};
use crate::config::Boot;
use crate::kvm::vcpu::EntryState;
use crate::layout;
use crate::memory::GuestRam;

/// The payload could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// The file cannot be opened or read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Not a regular file.
    #[error("{}: is a {what}; name a kernel image", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Nothing in it.
    #[error("{}: is empty; name a kernel image", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
    /// Something else than a kernel.
    #[error("{}: is {foreign}; wanted: an ELF kernel with a PVH entry point", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        foreign: Foreign,
    },
    /// A kernel of a kind that is not loaded.
    #[error("{}: is a bzImage; wanted: an ELF kernel with a PVH entry point (vmlinux)", path.display())]
    BzImage {
        /// Which file.
        path: PathBuf,
    },
    /// The ELF is faulty or unfit.
    #[error("{name}: {source}")]
    Elf {
        /// Which image.
        name: String,
        /// What is wrong.
        source: ElfError,
    },
    /// The boot information.
    #[error(transparent)]
    BootInformation(#[from] PvhError),
}

/// Loads what the machine boots and says how it is entered.
///
/// # Errors
/// [`PayloadError`].
pub fn load(boot: &Boot, map: &MemoryMap, ram: &GuestRam, tables: &BuiltTables) -> Result<EntryState, PayloadError> {
    let (loaded, command_line) = match boot {
        Boot::Probe { workload } => {
            let name = "the built-in probe guest".to_owned();
            let entry = load_elf(&mut Cursor::new(probe::IMAGE), probe::IMAGE.len() as u64, map, ram, name)?;
            (entry, Cow::Owned(format!("workload={workload}")))
        }
        Boot::Kernel { image, command_line, .. } => {
            let (mut file, bytes) = open(image)?;
            let entry = load_elf(&mut file, bytes, map, ram, image.display().to_string())?;
            (entry, Cow::Borrowed(command_line.as_str()))
        }
    };
    let legacy_hole = layout::LOW_RAM_END..layout::HIGH_RAM_START;
    let regions = map.regions(&[legacy_hole, tables.reserved.clone()]);
    let start_info = pvh::write_boot_information(ram.memory(), &regions, &command_line, tables.acpi.rsdp_gpa)?;
    Ok(EntryState::Pvh { entry: loaded, start_info })
}

fn load_elf(
    image: &mut impl KernelImage,
    bytes: u64,
    map: &MemoryMap,
    ram: &GuestRam,
    name: String,
) -> Result<u32, PayloadError> {
    elf::load(image, bytes, map, ram.memory())
        .map(|loaded| loaded.pvh_entry)
        .map_err(|source| PayloadError::Elf { name, source })
}

/// Opens a kernel file that is a file, is not empty, and is of a kind that is loaded.
fn open(path: &Path) -> Result<(File, u64), PayloadError> {
    let unreadable = |source| PayloadError::Read { path: path.to_owned(), source };
    // Looked at before it is opened: opening a FIFO would wait for a writer.
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "directory" } else { "device, pipe or socket" };
        return Err(PayloadError::NotAFile { path: path.to_owned(), what });
    }
    if metadata.len() == 0 {
        return Err(PayloadError::Empty { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut head = Vec::with_capacity(image::MAGIC_BYTES);
    (&file).take(image::MAGIC_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    match image::identify(&head) {
        ImageKind::Elf => Ok((file, metadata.len())),
        ImageKind::BzImage => Err(PayloadError::BzImage { path: path.to_owned() }),
        ImageKind::Foreign(foreign) => Err(PayloadError::Foreign { path: path.to_owned(), foreign }),
    }
}
