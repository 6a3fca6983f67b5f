// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "sched_setattr has no wrapper")]
//! How soon a thread that slept has a CPU again, on a host whose CPUs are all busy.
//!
//! The scheduler lets a task that wakes and asks for a shorter slice run before the one that is on the CPU has used up its
//! own (kernel/sched/fair.c, `PREEMPT_SHORT`; a slice of one's own: Linux 6.12, `sched_setattr(2)`, `sched_runtime` of
//! `SCHED_OTHER`). It takes no privilege, and no larger share: whoever runs often and briefly gets its turn sooner, and no
//! more of the CPU. Older kernels take the call and change nothing.

use std::io;

/// The shortest slice that the kernel grants.
const SHORTEST_NS: u64 = 100_000;

/// The calling thread asks for the shortest slice from now on; its policy and its nice value stay.
///
/// # Errors
/// The kernel's own: a kernel or a filter that does not know the call. Nothing was changed then.
pub fn shorten_this_threads() -> io::Result<()> {
    let mut attributes = of_this_thread()?;
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel reads as many bytes as the struct says it has.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn of_this_thread() -> io::Result<libc::sched_attr> {
    /// `SCHED_ATTR_SIZE_VER0`.
    const BYTES: u32 = 48;
    const { assert!(size_of::<libc::sched_attr>() == BYTES as usize) };
    let mut attributes = libc::sched_attr {
        size: BYTES,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most the bytes that it is told of, which are those of the struct.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, BYTES, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_stays_and_the_slice_is_short_where_the_kernel_has_slices() {
        // A thread of its own: the test's would keep it.
        let (before, after) = std::thread::spawn(|| {
            let before = of_this_thread().unwrap();
            shorten_this_threads().unwrap();
            (before, of_this_thread().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!((before.sched_policy, before.sched_nice), (after.sched_policy, after.sched_nice));
        // A kernel that tells no slice has none to change.
        let expected = if before.sched_runtime == 0 { 0 } else { SHORTEST_NS };
        assert_eq!(after.sched_runtime, expected);
    }
}
