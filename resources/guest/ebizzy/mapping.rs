// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "mmap has no safe wrapper in the standard library, and a guest's program has no other")]
//! A copy of a chunk in a mapping of its own, as ebizzy's `-m` wants it: the kernel makes and takes back every page.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};

const PROT_READ_WRITE: c_int = 3;
const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;

// The C library that the standard library is linked with has them (mmap(2)).
unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: c_long)
    -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
}

/// Records in a mapping of their own.
pub(crate) struct Mapping {
    start: NonNull<u64>,
    records: usize,
}

impl Mapping {
    /// Maps room for the records, which are at least one, and copies them there.
    pub(crate) fn copy_of(records: &[u64]) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at a place of the kernel's choice touches no memory of this process.
        let at = unsafe { mmap(ptr::null_mut(), size_of_val(records), PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
        if at.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(at.cast::<u64>()).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the mapping is new, page-aligned, writable, and as long as the records.
        unsafe { ptr::copy_nonoverlapping(records.as_ptr(), start.as_ptr(), records.len()) };
        Ok(Self { start, records: records.len() })
    }
}

impl Deref for Mapping {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: `copy_of` has written so many records there, and nothing else knows the place.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.records) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its last borrow has ended. It fails for no mapping that there is.
        unsafe { munmap(self.start.as_ptr().cast(), self.records * size_of::<u64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_equal_and_page_aligned() {
        let records: Vec<u64> = (0..5000).collect();
        let copy = Mapping::copy_of(&records).unwrap();
        assert_eq!(&*copy, &records[..]);
        assert_eq!(copy.as_ptr().addr() % 4096, 0);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        assert!(Mapping::copy_of(&[]).is_err());
    }
}
