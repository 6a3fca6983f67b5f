// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "getrlimit and setrlimit")]
//! The limit on open files: every vCPU is one, and the usual soft limit is 1024.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Descriptors that the monitor itself has open besides those of vCPUs, generously.
const OWN: u64 = 64;

/// There may not be as many open files as the machine needs.
#[derive(Debug, thiserror::Error)]
#[error(
    "{needed} open files are needed, one a vCPU, and {allowed} are allowed: raise the hard limit (ulimit -Hn), or ask \
     for fewer vCPUs"
)]
pub struct OpenFilesError {
    /// How many the machine needs.
    pub needed: u64,
    /// The hard limit.
    pub allowed: u64,
}

/// Raises the soft limit on open files, if it is too low for a machine of `vcpus` vCPUs. A limit that cannot be read
/// is left alone.
///
/// # Errors
/// [`OpenFilesError`] when the hard limit is too low.
pub fn allow_open_files(vcpus: u32) -> Result<(), OpenFilesError> {
    let needed = u64::from(vcpus) + OWN;
    // Where the hard limit has room: for each vCPU KVM's counters, its PAUSE exits, its helper vCPU and that one's counters.
    let wanted = needed + 4 * u64::from(vcpus);
    let Ok(limit) = read() else { return Ok(()) };
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    let raised = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
    // SAFETY: setrlimit reads the struct it is given.
    if limit.rlim_max < needed || unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(OpenFilesError { needed, allowed: limit.rlim_max });
    }
    Ok(())
}

/// Of the [`OWN`], how many may still be to be opened once the vCPUs are there.
const STILL_NEEDED: u64 = 32;

/// Passes on a file that was just opened and that the machine can do without, unless hardly any more could be opened after
/// it: those are for what it cannot do without.
///
/// # Errors
/// EMFILE, as if the limit had been reached; the file is closed.
pub fn spare<F: AsRawFd>(file: F) -> io::Result<F> {
    // The kernel gives the lowest number that is free, so this is about how many are open.
    let open = u64::try_from(file.as_raw_fd()).unwrap_or(0);
    match read() {
        Ok(limit) if open.saturating_add(STILL_NEEDED) >= limit.rlim_cur => {
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        }
        _ => Ok(file),
    }
}

fn read() -> io::Result<libc::rlimit> {
    let mut limit = MaybeUninit::uninit();
    // SAFETY: getrlimit fills the struct when it succeeds.
    unsafe {
        match libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) {
            0 => Ok(limit.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;

    use super::*;

    #[test]
    fn what_can_be_done_without_leaves_room_for_what_cannot() {
        struct Numbered(RawFd);
        impl AsRawFd for Numbered {
            fn as_raw_fd(&self) -> RawFd {
                self.0
            }
        }
        let limit = i32::try_from(read().unwrap().rlim_cur.min(1 << 30)).unwrap();
        assert!(spare(Numbered(3)).is_ok());
        let refused = spare(Numbered(limit - 1)).map(drop).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn a_hard_limit_that_is_too_low_is_named() {
        let hard = read().unwrap().rlim_max;
        if let Ok(too_many) = u32::try_from(hard) {
            let error = allow_open_files(too_many).unwrap_err();
            assert_eq!((error.allowed, error.needed), (hard, hard + OWN));
        }
        allow_open_files(1).unwrap();
    }
}
