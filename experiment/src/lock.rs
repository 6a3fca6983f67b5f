// SPDX-License-Identifier: Apache-2.0
//! One experiment at a time on a host: two would measure each other.
//!
//! A file that whoever runs holds locked, with who that is. The kernel gives up the lock when the process dies, however it
//! dies. Invariant: who is refused is told who runs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The right to measure on this host, until it is dropped.
#[derive(Debug)]
pub struct HostLock {
    _file: File,
}

/// Why an experiment may not run.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one runs.
    #[error("another experiment runs on this host: {who}; wait for its end, or end it")]
    Busy {
        /// Who, as it wrote it down.
        who: String,
    },
    /// The file cannot be used.
    #[error("{}: cannot be locked, so that two experiments could measure each other: {source}; make its directory \
             writable", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl HostLock {
    /// Takes the lock in the file `path`; `who` is what others are told.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(path: &Path, who: &str) -> Result<Self, LockError> {
        let unusable = |source| LockError::Unusable { path: path.to_owned(), source };
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(unusable)?;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
        let mut file = file.map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy(path)),
            Err(error) => return Err(unusable(error.into())),
        }
        // Who ran before is of no interest.
        file.set_len(0).and_then(|()| file.write_all(who.as_bytes())).map_err(unusable)?;
        Ok(Self { _file: file })
    }
}

fn busy(path: &Path) -> LockError {
    let who = fs::read_to_string(path).unwrap_or_default();
    let who = if who.trim().is_empty() { "it has not said who it is".to_owned() } else { who.trim().to_owned() };
    LockError::Busy { who }
}

/// Looks whether the lock of somebody else is held, and leaves it as it is. What cannot be read is taken for free: it was
/// made for others to see, or is none of ours.
///
/// # Errors
/// [`LockError::Busy`].
pub fn is_free(path: &Path) -> Result<(), LockError> {
    let Ok(file) = File::open(path) else { return Ok(()) };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(busy(path)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/experiment");
        let first = HostLock::take(&path, "process 1, plan quick").unwrap();
        let refused = HostLock::take(&path, "process 2").unwrap_err().to_string();
        assert!(refused.contains("process 1, plan quick"), "{refused}");
        assert!(is_free(&path).unwrap_err().to_string().contains("process 1, plan quick"));
        drop(first);
        assert!(is_free(&path).is_ok() && is_free(&directory.path().join("none")).is_ok());
        let third = HostLock::take(&path, "3").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3");
        drop(third);
        assert!(matches!(HostLock::take(Path::new("/dev/null/x"), ""), Err(LockError::Unusable { .. })));
    }
}
