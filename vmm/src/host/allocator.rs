// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "mallopt")]
//! The allocator: one heap for all threads.
//!
//! glibc gives each thread that allocates an arena of its own, which costs four system calls and two pages a vCPU. Our
//! threads allocate when they start and hardly after that, so there is nothing to contend for.

/// Makes all threads allocate from the main heap. Once, before the first thread is started.
pub fn use_one_arena() {
    // SAFETY: mallopt sets a parameter of the allocator; no other thread exists yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
