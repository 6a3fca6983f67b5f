// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "bpf(2) and a mapping shared with the kernel")]
//! The table that the program and this process share: an array map of one value, mapped into both.
//!
//! Invariant: every access is an atomic 32-bit one inside the mapping, so nothing is torn and nothing is out of bounds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::load::owned;
use super::program::{SLOT_BYTES, SLOTS, TABLE_BYTES};

/// `BPF_MAP_CREATE`.
const MAP_CREATE: libc::c_int = 0;
/// `BPF_MAP_TYPE_ARRAY`.
const TYPE_ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
const WORDS_PER_SLOT: usize = SLOT_BYTES / 4;

/// `union bpf_attr` for `BPF_MAP_CREATE`, as far as it is used (include/uapi/linux/bpf.h).
#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The shared table.
#[derive(Debug)]
pub(crate) struct Table {
    fd: OwnedFd,
    words: *mut AtomicU32,
}

// SAFETY: the mapping belongs to this value alone, lives as long as it does, and is accessed through atomics only.
unsafe impl Send for Table {}

impl Table {
    /// Makes the map and maps it.
    pub(crate) fn new() -> io::Result<Self> {
        let value_size = u32::try_from(TABLE_BYTES).unwrap_or(u32::MAX);
        let attributes =
            MapAttributes { map_type: TYPE_ARRAY, key_size: 4, value_size, max_entries: 1, map_flags: MAPPABLE };
        // SAFETY: the kernel reads the struct and nothing else; the result goes straight to its owner.
        let fd = unsafe {
            let size = size_of::<MapAttributes>();
            owned(libc::syscall(libc::SYS_bpf, MAP_CREATE, &raw const attributes, size))?
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it is checked below.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), TABLE_BYTES, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd, words: mapped.cast() })
    }

    /// The map's descriptor, for the program.
    pub(crate) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Says how many slots are in use.
    pub(crate) fn set_count(&self, count: usize) {
        let count = u32::try_from(count.min(SLOTS)).unwrap_or(0);
        self.word_at(0).store(count, Ordering::Relaxed);
    }

    /// Reads a word of a slot.
    pub(crate) fn get(&self, slot: usize, word: usize) -> u32 {
        self.word_at((slot + 1) * WORDS_PER_SLOT + word).load(Ordering::Relaxed)
    }

    /// Writes a word of a slot.
    pub(crate) fn set(&self, slot: usize, word: usize, value: u32) {
        self.word_at((slot + 1) * WORDS_PER_SLOT + word).store(value, Ordering::Relaxed);
    }

    fn word_at(&self, number: usize) -> &AtomicU32 {
        assert!(number < TABLE_BYTES / 4, "invariant: slots are counted before they are used");
        // SAFETY: the mapping holds TABLE_BYTES bytes, page-aligned, and lives as long as `self`.
        unsafe { &*self.words.add(number) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.words.cast(), TABLE_BYTES) };
    }
}
