// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "mallopt and malloc_trim")]
//! The allocator: one heap for all threads.
//!
//! glibc gives each thread that allocates an arena of its own, which costs four system calls and two pages a vCPU. Our
//! threads allocate when they start and hardly after that, so there is nothing to contend for.

/// Makes all threads allocate from the main heap. Once, before the first thread is started.
pub fn use_one_arena() {
    // SAFETY: mallopt sets a parameter of the allocator; no other thread exists yet.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Gives memory that was allocated and freed again back to the system, which the allocator would keep for later.
pub fn give_back() {
    // SAFETY: malloc_trim releases pages that hold nothing allocated, under the allocator's own lock.
    unsafe { libc::malloc_trim(0) };
}
