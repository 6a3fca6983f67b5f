// SPDX-License-Identifier: Apache-2.0
//! The secret without which nobody is served over TCP.
//!
//! Invariant: it is compared in a time that does not depend on where the two differ, and never printed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;

/// Fewest characters of a token: 16 random hexadecimal digits are 64 bits.
const SHORTEST: usize = 16;
/// Longest token, in bytes.
const LONGEST: usize = 1024;

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}; name a file that holds a token", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It is no regular file.
    #[error("{}: is not a regular file; write the token into one", .path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Others can read it.
    #[error("{}: others may read it (mode {mode:o}); chmod 600 {}", .path.display(), .path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Too short or too long.
    #[error(
        "{}: the token has {length} characters; take {SHORTEST} to {LONGEST}, as `openssl rand -hex 32` makes them",
        .path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// What it holds.
        length: usize,
    },
    /// Not what a header can carry.
    #[error("{}: the token has characters other than visible ASCII; take letters and digits", .path.display())]
    Characters {
        /// The file.
        path: PathBuf,
    },
}

/// A token.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Reads a token: the file's content without blank space around it.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let fail = |source| TokenError::Read { path: path.to_owned(), source };
        // A pipe would be waited for at the opening: look first.
        let metadata = std::fs::metadata(path).map_err(fail)?;
        if !metadata.is_file() {
            return Err(TokenError::NotAFile { path: path.to_owned() });
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Readable { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        File::open(path).map_err(fail)?.take(LONGEST as u64 * 2).read_to_end(&mut bytes).map_err(fail)?;
        let token = bytes.trim_ascii();
        if !(SHORTEST..=LONGEST).contains(&token.len()) {
            return Err(TokenError::Length { path: path.to_owned(), length: token.len() });
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Characters { path: path.to_owned() });
        }
        Ok(Self(token.to_vec()))
    }

    /// Whether the value of a header `Authorization` carries this token.
    #[must_use]
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let (scheme, rest) = authorization.split_at(authorization.len().min(7));
        let given = rest.trim_ascii();
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(self.0.ct_eq(given))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = Token(b"0123456789abcdef".to_vec());
        assert!(token.is_in(b"Bearer 0123456789abcdef") && token.is_in(b"bearer 0123456789abcdef "));
        for wrong in ["", "Bearer", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcde", "Basic 0123456789abcdef"] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
        assert!(!token.is_in(b"Bearer 0123456789abcdef0"));
        assert_eq!(format!("{token:?}"), "Token");
    }
}
