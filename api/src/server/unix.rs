// SPDX-License-Identifier: Apache-2.0
//! The Unix socket: made for its owner alone, in place of one that a dead process left, never of a live one.
//!
//! Invariant: at no moment may another user connect to it, and nothing but a socket is ever removed.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// How long another process may take to decide about the same socket.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path cannot be a socket's.
    #[error("{}: cannot be the path of a socket: {source}; it may have 107 bytes at most", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Somebody serves there.
    #[error("{}: another process serves there; stop it, or take another path", .path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{}: exists and is not a socket; remove it, or take another path", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{}: {what}: {source}; take a directory that exists and that you may write to", .path.display())]
    Refused {
        /// The path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A socket in the file system; its path is removed with it.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    identity: (u64, u64),
}

impl Socket {
    /// Makes the socket and listens on it.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(super) fn listen(path: &Path) -> Result<(Self, UnixListener), SocketError> {
        let address = SocketAddrUnix::new(path)
            .map_err(|error| SocketError::Path { path: path.to_owned(), source: error.into() })?;
        let refused = |what| move |source| SocketError::Refused { path: path.to_owned(), what, source };
        let _lock = lock_directory_of(path).map_err(refused("its directory cannot be locked"))?;
        clear(path, &address)?;
        let listener = bound(&address).map_err(refused("cannot be made"))?;
        let made = fs::symlink_metadata(path).map_err(refused("cannot be seen"))?;
        Ok((Self { path: path.to_owned(), identity: identity(&made) }, UnixListener::from(listener)))
    }

    /// Where it is.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Somebody may have put another one there.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Two processes that find the same dead socket must not both replace it.
fn lock_directory_of(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = File::open(directory)?;
    let began = Instant::now();
    while let Err(error) = flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK || began.elapsed() > PATIENCE {
            return Err(error.into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(directory)
}

/// Removes what a dead process left.
fn clear(path: &Path, address: &SocketAddrUnix) -> Result<(), SocketError> {
    let refused = |what, source| Err(SocketError::Refused { path: path.to_owned(), what, source });
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return refused("cannot be seen", error),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    // A live one with a full backlog answers EAGAIN, which is an answer.
    let tried = new_socket().and_then(|socket| connect(&socket, address));
    match tried {
        Err(rustix::io::Errno::CONNREFUSED) => {}
        Ok(()) | Err(rustix::io::Errno::AGAIN) => return Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) => return refused("it cannot be told whether somebody serves there", error.into()),
    }
    fs::remove_file(path).or_else(|error| refused("the socket of a dead process cannot be removed", error))
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn bound(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    // The file gets the mode that its socket has (net/unix/af_unix.c, unix_bind_bsd), so there is no moment before a chmod.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
