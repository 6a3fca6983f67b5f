// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "prctl has no safe wrapper here")]
//! Core scheduling: threads that share a cookie may run on the siblings of one core at a time, others may not
//! (Documentation/admin-guide/hw-vuln/core-scheduling.rst, Linux 5.14).
//!
//! Invariant: only the threads that are named get the cookie; the one that asks keeps its own.

use std::io;
use std::thread;

/// `PIDTYPE_PID` of the kernel: one thread.
const ONE_THREAD: libc::c_ulong = 0;

/// Why threads have no cookie.
#[derive(Debug, thiserror::Error)]
pub enum CoreSchedulingError {
    /// Switched off in the kernel.
    #[error("this kernel has no core scheduling (CONFIG_SCHED_CORE, Linux 5.14)")]
    Lacking,
    /// No core has siblings that are online.
    #[error("no core of this host has two threads online, so nobody runs beside a vCPU anyway")]
    NoSiblings,
    /// A thread did not get what it was given.
    #[error("thread {tid} has cookie {found:#x} and not {wanted:#x}")]
    Differs {
        /// The thread.
        tid: i32,
        /// What it has.
        found: u64,
        /// What it was given.
        wanted: u64,
    },
    /// Something else.
    #[error("the kernel refuses: {0}")]
    Refused(#[source] io::Error),
}

impl CoreSchedulingError {
    /// What to do about it; `None` if nothing needs to be or can be done.
    #[must_use]
    pub const fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Lacking => Some("use a kernel with CONFIG_SCHED_CORE, or switch SMT off"),
            Self::NoSiblings => None,
            Self::Differs { .. } | Self::Refused(_) => Some("allow prctl(PR_SCHED_CORE) in the container"),
        }
    }
}

/// Gives all of `threads` one new cookie; which one, as the kernel reads it back from each.
///
/// # Errors
/// [`CoreSchedulingError`]; threads that have got the cookie by then keep it.
pub fn share(threads: &[i32]) -> Result<u64, CoreSchedulingError> {
    // A cookie is made for the calling thread and copied from there: a thread of its own takes it along when it ends.
    let made = thread::scope(|scope| {
        let maker = thread::Builder::new().name("cookie".to_owned()).spawn_scoped(scope, || make(threads));
        // A panic aborts the process, so a join cannot fail.
        maker.map(|maker| maker.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    });
    let wanted = made.map_err(CoreSchedulingError::Refused)?.map_err(explain)?;
    for tid in threads {
        let found = get(*tid).map_err(explain)?;
        if found != wanted {
            return Err(CoreSchedulingError::Differs { tid: *tid, found, wanted });
        }
    }
    Ok(wanted)
}

fn make(threads: &[i32]) -> io::Result<u64> {
    ask(libc::PR_SCHED_CORE_CREATE, 0, None)?;
    threads.iter().try_for_each(|tid| ask(libc::PR_SCHED_CORE_SHARE_TO, *tid, None))?;
    get(0)
}

/// The cookie of a thread, 0 if it has none; thread 0 is the calling one.
fn get(tid: i32) -> io::Result<u64> {
    let mut cookie = 0;
    ask(libc::PR_SCHED_CORE_GET, tid, Some(&mut cookie))?;
    Ok(cookie)
}

fn ask(what: libc::c_int, tid: i32, cookie: Option<&mut u64>) -> io::Result<()> {
    let place = cookie.map_or(0, |cookie| std::ptr::from_mut(cookie) as libc::c_ulong);
    let (what, tid) = (libc::c_ulong::from(what.cast_unsigned()), libc::c_ulong::from(tid.cast_unsigned()));
    // SAFETY: the kernel writes eight bytes to `place`, which is a u64 of the caller, and only for PR_SCHED_CORE_GET.
    let result = unsafe { libc::prctl(libc::PR_SCHED_CORE, what, tid, ONE_THREAD, place) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn explain(error: io::Error) -> CoreSchedulingError {
    match error.raw_os_error() {
        Some(libc::EINVAL) => CoreSchedulingError::Lacking,
        Some(libc::ENODEV) => CoreSchedulingError::NoSiblings,
        _ => CoreSchedulingError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_told_apart() {
        let text = |code| explain(io::Error::from_raw_os_error(code)).to_string();
        assert!(text(libc::EINVAL).contains("CONFIG_SCHED_CORE"));
        assert!(text(libc::ENODEV).contains("two threads online"));
        assert!(text(libc::EPERM).contains("refuses"));
    }

    #[test]
    fn the_thread_that_asks_keeps_its_own_cookie() {
        let before = get(0).ok();
        // Whatever this kernel says of it.
        let _ = share(&[]);
        assert_eq!(get(0).ok(), before);
    }
}
