// SPDX-License-Identifier: Apache-2.0
//! Whether exits can be seen through the kernel's tracepoints: tracefs, perf, and our privileges.

#![expect(unsafe_code, reason = "perf_event_open has no wrapper in libc")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::{Finding, ReadText};

/// Where tracefs may be mounted (`Documentation/trace/ftrace.rst`).
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

pub(super) fn inspect(read: ReadText<'_>) -> Vec<Finding> {
    let id = kvm_exit_id(read);
    let tracefs = match &id {
        Ok((path, id)) => Finding::yes("trace.kvm_exit", format!("{path}/events/kvm/kvm_exit, id {id}")),
        Err(error) => no_tracefs(error),
    };
    let perf = match id {
        Ok((_, id)) => tracepoint_event(&open_tracepoint(id)),
        Err(_) => Finding::unknown("trace.perf_event", "the id of kvm:kvm_exit stands in tracefs, see trace.kvm_exit"),
    };
    vec![tracefs, paranoid(read("/proc/sys/kernel/perf_event_paranoid")), perf]
}

/// The first tracefs that has the event, and the event's id.
fn kvm_exit_id(read: ReadText<'_>) -> io::Result<(&'static str, u64)> {
    let mut first_error = None;
    for path in TRACEFS {
        match read(&format!("{path}/events/kvm/kvm_exit/id")) {
            Ok(text) => match text.parse() {
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

fn no_tracefs(error: &io::Error) -> Finding {
    let reason = format!("{}/events/kvm/kvm_exit/id: {error}", TRACEFS[0]);
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root, or remount tracefs with gid= of a group you are in",
        _ => "mount -t tracefs tracefs /sys/kernel/tracing, and load the kvm module",
    };
    Finding::no("trace.kvm_exit", reason, remedy)
}

fn paranoid(level: io::Result<String>) -> Finding {
    const KEY: &str = "trace.perf_unprivileged";
    match level.map(|text| text.parse::<i32>().map_err(|_| text)) {
        Ok(Ok(level)) if level < 0 => {
            Finding::yes(KEY, format!("perf_event_paranoid {level}: raw tracepoints for all"))
        }
        Ok(Ok(level)) => Finding::no(
            KEY,
            format!("perf_event_paranoid {level}: raw tracepoints need CAP_PERFMON"),
            "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=-1",
        ),
        Ok(Err(text)) => Finding::unknown(KEY, format!("perf_event_paranoid says {text:?}")),
        Err(error) => Finding::unknown(KEY, format!("/proc/sys/kernel/perf_event_paranoid: {error}")),
    }
}

fn tracepoint_event(opened: &io::Result<()>) -> Finding {
    const KEY: &str = "trace.perf_event";
    match opened {
        Ok(()) => Finding::yes(KEY, "a perf event on kvm:kvm_exit of the own thread opens"),
        Err(error) => Finding::no(
            KEY,
            format!("a perf event on kvm:kvm_exit does not open: {error}"),
            match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => "run as root or with CAP_PERFMON",
                Some(libc::ENOSYS) => "use a kernel with CONFIG_PERF_EVENTS, and no seccomp filter on perf_event_open",
                Some(libc::EMFILE) => "raise the limit of open files (ulimit -n)",
                _ => "look at the kernel's messages (dmesg) for perf",
            },
        ),
    }
}

/// Opens, and at once closes, a disabled perf event on a tracepoint for the calling thread.
fn open_tracepoint(id: u64) -> io::Result<()> {
    /// `struct perf_event_attr` in its first size, PERF_ATTR_SIZE_VER0, as words (`include/uapi/linux/perf_event.h`).
    const WORDS: usize = 8;
    const PERF_TYPE_TRACEPOINT: u64 = 2;
    /// Word 5, bit 0: `disabled`.
    const DISABLED: u64 = 1;
    const SIZE: u64 = 8 * WORDS as u64;
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
    // Type in the low half of word 0, size in the high one; config; sample period; two formats; flags.
    let attributes: [u64; WORDS] = [PERF_TYPE_TRACEPOINT | SIZE << 32, id, 1, 0, 0, DISABLED, 0, 0];
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
    own_and_close(result)
}

/// Closes the file descriptor that a system call returned, or gives its error.
pub(super) fn own_and_close(result: libc::c_long) -> io::Result<()> {
    match i32::try_from(result) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the system call has just made this descriptor, so nobody else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{Answer, fixture};

    #[test]
    fn tracefs_is_found_in_either_place() {
        for path in TRACEFS {
            let file = format!("{path}/events/kvm/kvm_exit/id");
            assert_eq!(kvm_exit_id(&fixture(&[(&file, "1234")])).expect("it is there"), (path, 1234));
        }
        let garbage = format!("{}/events/kvm/kvm_exit/id", TRACEFS[0]);
        assert!(kvm_exit_id(&fixture(&[(&garbage, "many")])).is_err());
    }

    #[test]
    fn no_permission_has_another_remedy_than_no_mount() {
        let denied = |_: &str| Err(io::Error::from_raw_os_error(libc::EACCES));
        let denied = no_tracefs(&kvm_exit_id(&denied).expect_err("denied"));
        let absent = no_tracefs(&kvm_exit_id(&fixture(&[])).expect_err("absent"));
        assert!(denied.remedy.is_some_and(|remedy| remedy.contains("root")));
        assert!(absent.remedy.is_some_and(|remedy| remedy.contains("mount -t tracefs")));
    }

    #[test]
    fn paranoia_is_a_level() {
        assert_eq!(paranoid(Ok("-1".to_owned())).answer, Answer::Yes);
        assert_eq!(paranoid(Ok("2".to_owned())).answer, Answer::No);
        assert_eq!(paranoid(Ok("high".to_owned())).answer, Answer::Unknown);
    }
}
