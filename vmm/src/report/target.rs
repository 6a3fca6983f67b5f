// SPDX-License-Identifier: Apache-2.0
//! Where the report goes: checked before boot, written in one step at the end.
//!
//! The invariant: whoever looks at the path sees the old file, no file, or the whole new one. A run that fails, or is
//! killed, leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Report;
use crate::host::output::{Bounded, READER_LIMIT};

/// The flag a report's path comes from.
const FLAG: &str = "--report";

/// Names that are tried for the temporary file. One that was killed leaves its own behind, and process ids come again: in
/// a container of its own the monitor always has the same.
const MAX_TEMPORARIES: u32 = 64;

/// Symbolic links in a row that Linux follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Why a report, or another file a flag names, cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The path names a directory.
    #[error("{flag} {}: is a directory; give the path of a file", .path.display())]
    IsDirectory {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
    },
    /// No file can be made in the directory.
    #[error(
        "{flag} {}: cannot create a file in {}: {source}; give a path in a directory you may write to",
        .path.display(),
        .directory.display()
    )]
    Directory {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The directory that refused.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is there and cannot be written to.
    #[error(
        "{flag} {}: the file exists and cannot be written: {source}; remove it or give another path",
        .path.display()
    )]
    Existing {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The report was lost at the end: the disk is full, or the directory is gone.
    #[error("{flag} {}: cannot write it: {source}; the run itself has ended", .path.display())]
    Write {
        /// The flag that names it.
        flag: &'static str,
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A path that could be written when it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportTarget {
    path: PathBuf,
    /// What is really written: symbolic links are followed, so that they survive the rename.
    file: PathBuf,
    /// A pipe or a device is written in place; everything else is replaced by a rename.
    in_place: bool,
}

impl ReportTarget {
    /// Checks that a report can be written to `path`, by writing an empty file beside it and removing that.
    ///
    /// # Errors
    /// The path is a directory, its directory takes no file, or the file that is there takes no data.
    pub fn check(path: &Path) -> Result<Self, ReportError> {
        check_output(FLAG, path)
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report as JSON that a person can read, with a newline at its end.
    ///
    /// # Errors
    /// The file system refused; the path is then as it was before.
    pub fn write(&self, report: &Report) -> Result<(), ReportError> {
        self.try_write(report).map_err(|source| ReportError::Write { flag: FLAG, path: self.path.clone(), source })
    }

    fn try_write(&self, report: &Report) -> io::Result<()> {
        if self.in_place {
            // Without waiting: a named pipe without a reader is an error (ENXIO), and no reason to wait for one.
            let file = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.file)?;
            return write_json(&file, report);
        }
        let temporary = self.create_temporary()?;
        write_json(&temporary.file, report)?;
        fs::rename(&temporary.path, &self.file)
    }

    fn directory(&self) -> &Path {
        directory_of(&self.file)
    }

    fn create_temporary(&self) -> io::Result<Temporary> {
        let name = self.file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut taken = io::ErrorKind::AlreadyExists.into();
        for attempt in 0..MAX_TEMPORARIES {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{attempt}", std::process::id()));
            let path = self.directory().join(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Temporary { path, file }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }
}

/// Checks that a file can be written to `path`, which the flag `flag` names, by writing an empty file beside it and
/// removing that. The file at `path` is left as it is.
///
/// # Errors
/// The path is a directory, its directory takes no file, or the file that is there takes no data.
pub(crate) fn check_output(flag: &'static str, path: &Path) -> Result<ReportTarget, ReportError> {
    if names_directory(path) {
        return Err(ReportError::IsDirectory { flag, path: path.to_owned() });
    }
    let file = real_file(path).map_err(|source| ReportError::Directory {
        flag,
        path: path.to_owned(),
        directory: directory_of(path).to_owned(),
        source,
    })?;
    let in_place = match fs::metadata(&file) {
        Ok(found) if found.is_dir() => return Err(ReportError::IsDirectory { flag, path: path.to_owned() }),
        Ok(found) => {
            if found.is_file() {
                OpenOptions::new().write(true).open(&file).map_err(|source| ReportError::Existing {
                    flag,
                    path: path.to_owned(),
                    source,
                })?;
            }
            !found.is_file()
        }
        Err(_) => false,
    };
    let target = ReportTarget { path: path.to_owned(), file, in_place };
    if !in_place {
        target.create_temporary().map(drop).map_err(|source| ReportError::Directory {
            flag,
            path: path.to_owned(),
            directory: target.directory().to_owned(),
            source,
        })?;
    }
    Ok(target)
}

/// Whether only a directory can have this name, there or not. [`Path`] itself looks past such an end.
fn names_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The file behind `path` and all symbolic links, which need not be there yet: a link that leads nowhere says where it
/// is to be, as it does for `open`.
fn real_file(path: &Path) -> io::Result<PathBuf> {
    let mut file = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::canonicalize(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match fs::read_link(&file) {
            Ok(target) => file = directory_of(&file).join(target),
            Err(_) => return Ok(file),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// A file that is gone when it goes out of scope, unless it was renamed before.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is nothing under this name, and that is what is wanted.
        let _ = fs::remove_file(&self.path);
    }
}

/// Written in one go, so that a reader who stands still is waited for once; a pipe goes on for as long as its reader does.
fn write_json(file: &File, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    Bounded::new(file, READER_LIMIT).write_all(&text)
}
