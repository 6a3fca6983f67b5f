// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "perf_event_open has no wrapper in libc")]
//! The tracepoint `kvm:kvm_exit`: where tracefs tells its id, and the perf event that counts it for one thread.
//!
//! Invariant: an event counts for the thread that opened it, and ends when its file is dropped.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Where tracefs may be mounted (`Documentation/trace/ftrace.rst`).
pub(crate) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The first tracefs that has `kvm:kvm_exit`, and the event's id. `read` reads a small file as text.
///
/// # Errors
/// Why it is not to be had: the reason of the tracefs that is there, if one is.
pub(crate) fn kvm_exit_id(read: &dyn Fn(&str) -> io::Result<String>) -> io::Result<(&'static str, u64)> {
    let mut first_error = None;
    for path in TRACEFS {
        match read(&format!("{path}/events/kvm/kvm_exit/id")) {
            Ok(text) => match text.trim().parse() {
                Ok(id) => return Ok((path, id)),
                Err(_) => first_error = first_error.or(Some(io::ErrorKind::InvalidData.into())),
            },
            // What keeps us from the one that is there says more than that the other is not.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Opens a perf event on a tracepoint for the calling thread, on any CPU, that overflows every `period` times, or
/// with 0 never (perf_event_open(2)).
///
/// # Errors
/// The kernel's own: no privilege, no descriptors left.
pub(crate) fn open_tracepoint(id: u64, period: u64) -> io::Result<fs::File> {
    /// `struct perf_event_attr` in its first size, PERF_ATTR_SIZE_VER0, as words (`include/uapi/linux/perf_event.h`).
    const WORDS: usize = 8;
    const SIZE: u64 = 8 * WORDS as u64;
    const PERF_TYPE_TRACEPOINT: u64 = 2;
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    // Type in the low half of word 0, size in the high one; config; period; two formats; flags; wakeup_events.
    let attributes: [u64; WORDS] = [PERF_TYPE_TRACEPOINT | SIZE << 32, id, period, 0, 0, 0, 1, 0];
    let (this_thread, any_cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: the kernel reads `SIZE` bytes at the address, which is what the array has, and keeps no reference.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            this_thread,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the system call has just made this descriptor, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::fixture;

    #[test]
    fn tracefs_is_found_in_either_place() {
        for path in TRACEFS {
            let file = format!("{path}/events/kvm/kvm_exit/id");
            assert_eq!(kvm_exit_id(&fixture(&[(&file, "1234\n")])).expect("it is there"), (path, 1234));
        }
        let garbage = format!("{}/events/kvm/kvm_exit/id", TRACEFS[0]);
        assert!(kvm_exit_id(&fixture(&[(&garbage, "many")])).is_err());
    }
}
