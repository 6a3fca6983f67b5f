// SPDX-License-Identifier: Apache-2.0
//! Whether exits can be seen through the kernel's tracepoints: tracefs, perf, and our privileges.

use std::io;

use super::{Finding, ReadText};
use crate::host::perf::{self, TRACEFS};

pub(super) fn inspect(read: ReadText<'_>) -> Vec<Finding> {
    let id = perf::kvm_exit_id(read);
    let tracefs = match &id {
        Ok((path, id)) => Finding::yes("trace.kvm_exit", format!("{path}/events/kvm/kvm_exit, id {id}")),
        Err(error) => no_tracefs(error),
    };
    let perf = match id {
        Ok((_, id)) => tracepoint_event(&perf::open_tracepoint(id, 1).map(drop)),
        Err(_) => Finding::unknown("trace.perf_event", "the id of kvm:kvm_exit stands in tracefs, see trace.kvm_exit"),
    };
    vec![tracefs, paranoid(read("/proc/sys/kernel/perf_event_paranoid")), perf]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{Answer, fixture};

    #[test]
    fn no_permission_has_another_remedy_than_no_mount() {
        let denied = |_: &str| Err(io::Error::from_raw_os_error(libc::EACCES));
        let denied = no_tracefs(&perf::kvm_exit_id(&denied).expect_err("denied"));
        let absent = no_tracefs(&perf::kvm_exit_id(&fixture(&[])).expect_err("absent"));
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
