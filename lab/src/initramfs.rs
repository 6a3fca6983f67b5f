// SPDX-License-Identifier: Apache-2.0
//! What is in the initial file system of the lab host, and of a small Linux guest.
//!
//! Place in the flow: files and a script go in, the bytes QEMU or the monitor hands to a kernel come out. Invariant: modules are
//! decompressed here, so the emulated processor does not have to; the caller's files never replace the lab's own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::child;
use crate::cpio::{Archive, CpioError};
use crate::packages::{DebianKernel, Store};
use crate::unavailable::LabUnavailable;

const LAB_INIT: &str = include_str!("../../resources/lab/init");
const GUEST_INIT_HEAD: &str = include_str!("../../resources/lab/guest-init");
/// In the order they must be loaded.
const LAB_MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];
const DECOMPRESS_LIMIT: Duration = Duration::from_secs(60);

/// Why an initial file system cannot be built.
#[derive(Debug, Error)]
pub enum InitramfsError {
    /// A package is missing.
    #[error(transparent)]
    Unavailable(#[from] LabUnavailable),
    /// A path cannot be put into the archive.
    #[error(transparent)]
    Archive(#[from] CpioError),
    /// A file of this machine cannot be read.
    #[error("{path}: {source}; the lab needs to read it")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A file to put into the lab host.
#[derive(Debug, Clone)]
pub(crate) struct GivenFile {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

/// What the lab host does once it is up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task<'a> {
    /// Runs this shell script and sends its results.
    Script(&'a str),
    /// Gives a shell on the console.
    Shell,
}

/// The lab host's initial file system.
pub(crate) fn lab(
    store: &Store,
    kernel: &DebianKernel,
    files: &[GivenFile],
    task: Task<'_>,
) -> Result<Vec<u8>, InitramfsError> {
    let busybox = store.busybox()?;
    let mut archive = with_busybox(&busybox)?;
    archive.directory("/results")?;
    archive.file("/init", 0o755, LAB_INIT.as_bytes().to_vec())?;
    for name in LAB_MODULES {
        let missing = || LabUnavailable::new(format!("module {name}"), "the kernel has none", "use a cloud kernel");
        let path = kernel.module(name).ok_or_else(missing)?;
        archive.file(&format!("/lab/modules/{name}.ko"), 0o644, module(&busybox, &path)?)?;
    }
    match task {
        Task::Script(script) => archive.file("/lab/script", 0o755, script.as_bytes().to_vec())?,
        Task::Shell => archive.file("/lab/shell", 0o644, Vec::new())?,
    }
    for file in files {
        archive.file(&file.path, file.mode, file.bytes.clone())?;
    }
    Ok(archive.finish())
}

/// An initial file system for a Linux guest: busybox, the usual file systems mounted, then `script`, then power off.
///
/// The script is run by busybox's shell as process 1's child with the console as its standard streams. `files` are added at
/// the paths given, executable.
pub fn guest(store: &Store, script: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, InitramfsError> {
    let mut archive = with_busybox(&store.busybox()?)?;
    archive.file("/init", 0o755, GUEST_INIT_HEAD.as_bytes().to_vec())?;
    archive.file("/script", 0o755, script.as_bytes().to_vec())?;
    for (path, bytes) in files {
        archive.file(path, 0o755, bytes.to_vec())?;
    }
    Ok(archive.finish())
}

fn with_busybox(busybox: &Path) -> Result<Archive, InitramfsError> {
    let mut archive = Archive::new();
    for directory in ["/proc", "/sys", "/dev", "/tmp", "/run", "/etc"] {
        archive.directory(directory)?;
    }
    archive.file("/bin/busybox", 0o755, read(busybox)?)?;
    Ok(archive)
}

fn module(busybox: &Path, path: &Path) -> Result<Vec<u8>, InitramfsError> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return read(path);
    }
    let mut command = child::bound_to_us(busybox);
    command.args(["unxz", "-c"]).arg(path);
    Ok(child::output(&mut command, DECOMPRESS_LIMIT, "remove the lab's cache so that it is fetched again")?)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, InitramfsError> {
    fs::read(path).map_err(|source| InitramfsError::Read { path: path.display().to_string(), source })
}
