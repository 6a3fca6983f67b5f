// SPDX-License-Identifier: Apache-2.0
//! Writes the archive a Linux kernel unpacks as its initial file system: cpio in the "newc" format.
//!
//! Place in the flow: [`crate::initramfs`] names the files, this module makes the bytes, QEMU hands them to the kernel.
//! Invariant: the same entries give the same bytes (no clock, no owner, inode numbers count up), every directory comes
//! before what it holds, and no path occurs twice.
//! Source: Linux `Documentation/driver-api/early-userspace/buffer-format.rst`, `usr/gen_init_cpio.c`.

use std::collections::BTreeMap;

use thiserror::Error;

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const ALIGNMENT: usize = 4;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// Why an entry cannot be put into the archive.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CpioError {
    /// The path is empty, names the root, steps upwards or holds a NUL byte.
    #[error("archive path {path:?} is not usable: {why}; give a path such as /bin/vmm")]
    Path {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Two entries want to be one path, or a file is asked to be a directory.
    #[error("archive path {path:?} is taken already; give every file a path of its own")]
    Taken {
        /// The path that occurs twice.
        path: String,
    },
    /// The format stores sizes in 32 bits.
    #[error("{path:?} has {bytes} bytes, a cpio archive holds files below 4 GiB; hand over a smaller file")]
    TooLarge {
        /// The path of the file.
        path: String,
        /// Its size.
        bytes: usize,
    },
}

#[derive(Debug)]
enum Entry {
    Directory,
    File { mode: u32, bytes: Vec<u8> },
    Symlink { target: String },
}

/// An archive being put together. Parent directories are added by themselves.
#[derive(Debug, Default)]
pub struct Archive {
    /// Ordered by path, so a directory precedes what is in it.
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    /// An empty archive.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory; adding it again is no error.
    pub fn directory(&mut self, path: &str) -> Result<(), CpioError> {
        let path = relative(path)?;
        self.parents_of(&path)?;
        self.add_directory(path)
    }

    /// Adds a regular file with the permission bits of `mode` (such as 0o755).
    pub fn file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> Result<(), CpioError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(CpioError::TooLarge { path: path.to_owned(), bytes: bytes.len() });
        }
        self.add(path, Entry::File { mode: mode & 0o7777, bytes })
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<(), CpioError> {
        self.add(path, Entry::Symlink { target: target.to_owned() })
    }

    /// The archive's bytes, trailer included.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        for (inode, (path, entry)) in (1..).zip(&self.entries) {
            match entry {
                Entry::Directory => append(&mut out, &Header { inode, mode: S_IFDIR | 0o755, links: 2 }, path, &[]),
                Entry::File { mode, bytes } => {
                    append(&mut out, &Header { inode, mode: S_IFREG | mode, links: 1 }, path, bytes);
                }
                Entry::Symlink { target } => {
                    let header = Header { inode, mode: S_IFLNK | 0o777, links: 1 };
                    append(&mut out, &header, path, target.as_bytes());
                }
            }
        }
        append(&mut out, &Header { inode: 0, mode: 0, links: 1 }, TRAILER, &[]);
        out
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<(), CpioError> {
        let path = relative(path)?;
        self.parents_of(&path)?;
        if self.entries.contains_key(&path) {
            return Err(CpioError::Taken { path });
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    fn parents_of(&mut self, path: &str) -> Result<(), CpioError> {
        for (end, _) in path.match_indices('/') {
            self.add_directory(path[..end].to_owned())?;
        }
        Ok(())
    }

    fn add_directory(&mut self, path: String) -> Result<(), CpioError> {
        match self.entries.get(&path) {
            None => {
                self.entries.insert(path, Entry::Directory);
                Ok(())
            }
            Some(Entry::Directory) => Ok(()),
            Some(_) => Err(CpioError::Taken { path }),
        }
    }
}

struct Header {
    inode: u32,
    mode: u32,
    links: u32,
}

/// The path without its leading slash, refused when the kernel would put it somewhere else.
fn relative(path: &str) -> Result<String, CpioError> {
    let trimmed = path.trim_matches('/');
    let refuse = |why| Err(CpioError::Path { path: path.to_owned(), why });
    if trimmed.is_empty() {
        return refuse("it names no file");
    }
    if trimmed.contains('\0') {
        return refuse("it holds a NUL byte");
    }
    if trimmed == TRAILER {
        return refuse("it is the mark that ends an archive");
    }
    if trimmed.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return refuse("it has an empty, '.' or '..' part");
    }
    Ok(trimmed.to_owned())
}

fn append(out: &mut Vec<u8>, header: &Header, path: &str, data: &[u8]) {
    let size = u32::try_from(data.len()).expect("invariant: sizes are checked when a file is added");
    let name_size = u32::try_from(path.len() + 1).expect("invariant: a path is shorter than 4 GiB");
    // uid, gid, mtime, and both device numbers stay zero: the archive must not depend on who builds it and when.
    let fields = [header.inode, header.mode, 0, 0, header.links, 0, size, 0, 0, 0, 0, name_size, 0];
    out.extend_from_slice(MAGIC.as_bytes());
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    pad(out);
    out.extend_from_slice(data);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_archive_has_the_bytes_the_format_asks_for() {
        let mut archive = Archive::new();
        archive.file("/a", 0o755, b"hello".to_vec()).unwrap();
        let bytes = archive.finish();
        let text: String = bytes.iter().map(|&b| if b == 0 { '~' } else { char::from(b) }).collect();
        // Fields: inode, mode, uid, gid, links, mtime, size, device major and minor, rdev major and minor, name size, check.
        let expected = [
            "070701 00000001 000081ed 00000000 00000000 00000001 00000000 00000005",
            "00000000 00000000 00000000 00000000 00000002 00000000 a~ hello~~~",
            "070701 00000000 00000000 00000000 00000000 00000001 00000000 00000000",
            "00000000 00000000 00000000 00000000 0000000b 00000000 TRAILER!!!~ ~~~",
        ];
        assert_eq!(text, expected.concat().replace(' ', ""));
    }

    #[test]
    fn a_path_that_leaves_the_archive_is_refused() {
        let mut archive = Archive::new();
        for path in ["", "/", "../x", "a/../b", "a//b", "./a", "a\0b", "TRAILER!!!"] {
            assert!(matches!(archive.file(path, 0o644, Vec::new()), Err(CpioError::Path { .. })), "{path:?}");
        }
    }

    #[test]
    fn a_path_is_given_once() {
        let mut archive = Archive::new();
        archive.file("/a/b", 0o644, Vec::new()).unwrap();
        assert_eq!(archive.file("a/b", 0o644, Vec::new()), Err(CpioError::Taken { path: "a/b".to_owned() }));
        assert_eq!(archive.file("a/b/c", 0o644, Vec::new()), Err(CpioError::Taken { path: "a/b".to_owned() }));
        assert_eq!(archive.directory("a"), Ok(()));
    }

    /// What GNU cpio lists, or nothing when the machine has no cpio.
    fn listed_by_cpio(archive: &[u8]) -> Option<Vec<String>> {
        let mut command = Command::new("cpio");
        command.arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        child.stdin.take()?.write_all(archive).ok()?;
        let output = child.wait_with_output().ok()?;
        assert!(output.status.success(), "cpio -t refuses the archive");
        Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    }

    #[test]
    fn gnu_cpio_lists_what_was_added() {
        let mut archive = Archive::new();
        archive.file("/bin/tool", 0o755, vec![7; 4097]).unwrap();
        archive.directory("/proc").unwrap();
        archive.symlink("/bin/sh", "tool").unwrap();
        if let Some(names) = listed_by_cpio(&archive.finish()) {
            assert_eq!(names, ["bin", "bin/sh", "bin/tool", "proc"]);
        } else {
            eprintln!("cpio is not installed: the comparison with it was left out");
        }
    }

    /// Reads an archive back: (path, mode, data).
    fn decode(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[6 + index * 8..14 + index * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            assert_eq!(&bytes[..6], b"070701");
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            let data = (110 + name_size).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(bytes.len(), data);
                return entries;
            }
            entries.push((name, mode, bytes[data..data + size].to_vec()));
            bytes = &bytes[(data + size).next_multiple_of(4)..];
        }
    }

    proptest! {
        #[test]
        fn every_directory_precedes_its_content_and_every_file_comes_back(
            files in proptest::collection::btree_map("[a-z]{1,3}(/[A-Z]{1,4}){0,3}", proptest::collection::vec(any::<u8>(), 0..40), 0..12)
        ) {
            let mut archive = Archive::new();
            let mut kept = BTreeMap::new();
            for (path, data) in files {
                if archive.file(&path, 0o640, data.clone()).is_ok() {
                    kept.insert(path, data);
                }
            }
            let entries = decode(&archive.finish());
            let mut seen: Vec<String> = Vec::new();
            for (path, mode, data) in &entries {
                if let Some((parent, _)) = path.rsplit_once('/') {
                    prop_assert!(seen.iter().any(|earlier| earlier == parent), "{path} before {parent}");
                }
                prop_assert!(!seen.contains(path));
                seen.push(path.clone());
                if mode & S_IFREG == S_IFREG {
                    prop_assert_eq!(kept.remove(path), Some(data.clone()));
                }
            }
            prop_assert!(kept.is_empty());
        }
    }
}
