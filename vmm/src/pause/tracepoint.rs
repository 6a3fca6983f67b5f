// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "an ioctl, fcntl with a structure, and a signal handler have no safe wrapper")]
//! The source `tracepoint`: every K-th PAUSE exit of a vCPU thread, counted by the kernel, forces it out of `KVM_RUN`.
//!
//! The kernel consumes a PAUSE exit itself: the tracepoint `kvm:kvm_exit` fires, `kvm_vcpu_on_spin` looks for somebody
//! to yield to, and only then is a signal noticed. So a forced exit says that the kernel has tried K times. The signal
//! comes from a perf event of the thread on that tracepoint, filtered by exit reason (perf_event_open(2), fcntl(2)
//! F_SETOWN_EX, F_SETSIG). Invariant: the handler touches nothing but this thread's own flags.

use std::cell::Cell;
use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

use super::effective::Grant;
use crate::host::{perf, sysfs};
use crate::report::KvmKind;
use crate::vcpu::kick;

/// `EXIT_REASON_PAUSE_INSTRUCTION` (Intel SDM vol. 3D, appendix C).
const VMX_PAUSE: u32 = 40;
/// `SVM_EXIT_PAUSE` (AMD APM vol. 2, appendix C).
const SVM_PAUSE: u32 = 0x77;

thread_local! {
    // Const-initialised and without a destructor: a signal handler may touch it.
    static FORCED: Cell<bool> = const { Cell::new(false) };
}

/// The tracepoint, ready to be opened by every vCPU thread.
#[derive(Clone, Debug)]
pub struct Tracepoint {
    id: u64,
    reason: u32,
    /// PAUSE exits for each signal; 0 only counts.
    period: u64,
}

/// One thread's event.
#[derive(Debug)]
pub struct PauseExits(fs::File);

fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

/// Handles the signal, and SIGIO, which the kernel sends instead when the user's signal queue is full (fcntl(2),
/// F_SETSIG). Both are let through: they may be among those that end a run.
fn install_handlers() -> vmm_sys_util::errno::Result<()> {
    for signal in [signal(), libc::SIGIO] {
        register_signal_handler(signal, handle)?;
        unblock_signal(signal).map_err(|_| vmm_sys_util::errno::Error::last())?;
    }
    Ok(())
}

extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FORCED.set(true);
    kick::leave_guest();
}

/// Takes the mark that a PAUSE exit forced the calling thread out.
pub(super) fn take_forced() -> bool {
    FORCED.replace(false)
}

impl Tracepoint {
    /// Finds out whether PAUSE exits can be seen here, and installs the signal handler if they shall force exits.
    ///
    /// # Errors
    /// Why not, with the remedy where there is one.
    pub fn find(kind: KvmKind, period: u64) -> Result<Self, Box<Grant>> {
        let no = |why: String, remedy| Box::new(Grant::no("tracepoint", why, remedy));
        let reason = match kind {
            KvmKind::Vmx => VMX_PAUSE,
            KvmKind::Svm => SVM_PAUSE,
            KvmKind::Software => {
                return Err(no("this KVM is software-virtualised and makes no PAUSE exits".to_owned(), None));
            }
        };
        let (_, id) = perf::kvm_exit_id(&sysfs::read_small).map_err(|error| {
            no(
                format!("{}/events/kvm/kvm_exit/id: {error}", perf::TRACEFS[0]),
                Some("mount -t tracefs tracefs /sys/kernel/tracing, load the kvm module, run as root"),
            )
        })?;
        let tracepoint = Self { id, reason, period };
        // Tried on this thread, so that the answer is known before vCPUs run.
        tracepoint.open(0).map_err(|error| {
            no(
                format!("a perf event on kvm:kvm_exit does not open: {error}"),
                Some("run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=-1; raise ulimit -n"),
            )
        })?;
        if period > 0 {
            install_handlers().map_err(|error| no(format!("signal handler: {error}"), None))?;
            // Whoever started the process may have blocked it.
            unblock_signal(signal()).map_err(|error| no(format!("signal mask: {error}"), None))?;
        }
        Ok(tracepoint)
    }

    /// Opens the event for the calling thread, whose id is `tid`; with a period and a `tid`, it signals that thread.
    ///
    /// # Errors
    /// The kernel's own: no privilege, no descriptors left.
    pub fn open(&self, tid: i32) -> io::Result<PauseExits> {
        let file = perf::open_tracepoint(self.id, self.period.max(1))?;
        let filter = CString::new(format!("exit_reason == {}", self.reason)).map_err(io::Error::other)?;
        // SAFETY: the kernel reads the NUL-terminated text and keeps no reference.
        ok(unsafe { libc::ioctl(file.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) })?;
        if self.period > 0 && tid > 0 {
            send_signals(&file, tid)?;
        }
        Ok(PauseExits(file))
    }

    /// PAUSE exits for each forced exit; 0 if none is forced.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period
    }
}

impl PauseExits {
    /// PAUSE exits of the thread so far.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn count(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// `_IOW('$', 6, char *)` (include/uapi/linux/perf_event.h).
const PERF_EVENT_IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

/// Has the event signal one thread.
fn send_signals(file: &fs::File, tid: i32) -> io::Result<()> {
    /// `struct f_owner_ex` and F_OWNER_TID (include/uapi/asm-generic/fcntl.h).
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        id: libc::pid_t,
    }
    const F_SETOWN_EX: libc::c_int = 15;
    const F_SETSIG: libc::c_int = 10;
    let owner = Owner { kind: 0, id: tid };
    let fd = file.as_raw_fd();
    // SAFETY: the kernel reads one f_owner_ex and keeps no reference; the other two take integers.
    unsafe {
        ok(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))?;
        ok(libc::fcntl(fd, F_SETSIG, signal()))?;
        ok(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK))
    }
}

fn ok(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_pause_exits_says_so() {
        let refused = Tracepoint::find(KvmKind::Software, 8).unwrap_err();
        assert!(!refused.granted && refused.why.contains("no PAUSE exits"), "{refused:?}");
    }

    #[test]
    fn what_comes_instead_of_the_signal_forces_too() {
        install_handlers().unwrap();
        for signal in [signal(), libc::SIGIO] {
            // SAFETY: raise sends the signal to the calling thread, whose handler was installed above.
            unsafe { libc::raise(signal) };
            assert!(take_forced(), "signal {signal}");
        }
    }

    #[test]
    fn the_mark_is_taken_once() {
        FORCED.set(true);
        assert!(take_forced());
        assert!(!take_forced());
    }
}
