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
use std::path::Path;

use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

use super::forcing::{Forcing, Seen, Verdict};
use super::seat::Seat;
use super::source::{Moment, PauseSource, Spin, Tap, Unavailable, decides};
use super::yielding::switches;
use crate::config::{PauseMode, PausePlan, SourceChoice};
use crate::host::{facts, limits, perf, sysfs};
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

/// The source.
#[derive(Clone, Copy, Debug)]
pub struct PauseExits {
    /// PAUSE exits were switched off for this machine when it was made.
    switched_off: bool,
}

/// The tracepoint on this host, with its filter.
#[derive(Clone, Copy, Debug)]
struct Tracepoint {
    id: u64,
    reason: u32,
}

/// One thread's event.
#[derive(Debug)]
struct Counter {
    file: fs::File,
    /// How often exits are forced, where acting on them is to give way to the kernel.
    forcing: Option<Forcing>,
}

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
fn take_forced() -> bool {
    FORCED.replace(false)
}

impl PauseExits {
    /// For a machine whose PAUSE exits were `switched_off` or not.
    #[must_use]
    pub const fn new(switched_off: bool) -> Self {
        Self { switched_off }
    }
}

/// PAUSE exits for each forced exit; `None` if they are only counted: KVM alone is, without a single forced exit.
fn period(plan: &PausePlan) -> Option<u64> {
    decides(plan.mode).then_some(plan.sources.tracepoint_period)
}

impl PauseSource for PauseExits {
    fn choice(&self) -> SourceChoice {
        SourceChoice::Tracepoint
    }

    fn is_asked(&self, plan: &PausePlan) -> bool {
        plan.mode == PauseMode::Kernel
            || decides(plan.mode) && matches!(plan.source, SourceChoice::Auto | SourceChoice::Tracepoint)
    }

    fn available(&self, plan: &PausePlan) -> Result<String, Unavailable> {
        let tracepoint = Tracepoint::find(facts::kvm_kind())?;
        intercepted(facts::kvm_kind(), &sysfs::read_small)?;
        if self.switched_off {
            return Err(Unavailable {
                why: "PAUSE exits were switched off for this machine when it was made".to_owned(),
                remedy: Some("start with another mode than --pause off"),
            });
        }
        let no = |why, remedy| Unavailable { why, remedy };
        // Tried on this thread, so that the answer is known before a vCPU's thread needs it.
        tracepoint.open().map_err(|error| refused(&error, read("/proc/sys/kernel/perf_event_paranoid").ok()))?;
        match period(plan) {
            None => Ok("kvm:kvm_exit, counted".to_owned()),
            Some(period) => {
                install_handlers().map_err(|error| no(format!("its signal cannot be handled: {error}"), None))?;
                Ok(format!("kvm:kvm_exit, every {period}th PAUSE exit forces one"))
            }
        }
    }

    fn attach(&self, plan: &PausePlan, tid: i32) -> io::Result<Box<dyn Tap>> {
        let tracepoint = Tracepoint::find(facts::kvm_kind()).map_err(|missing| io::Error::other(missing.why))?;
        let mut counter = tracepoint.open_for(tid, period(plan))?;
        let acted_on = period(plan).filter(|_| plan.mode == PauseMode::Act);
        counter.forcing = acted_on.map(|period| Forcing::new(period, switches()));
        // Whoever started the process may have blocked it.
        unblock_signal(signal()).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(counter))
    }
}

const MORE_FILES: &str = "raise the limit on open files (ulimit -n, fs.file-max)";

/// Looks that this KVM has PAUSE intercepted at all: an event that never comes would be a burden on every switch of a
/// vCPU's thread. A parameter that cannot be read says nothing.
///
/// # Errors
/// It is switched off, or the processor cannot.
fn intercepted(kind: KvmKind, read: &dyn Fn(&str) -> io::Result<String>) -> Result<(), Unavailable> {
    let Some(path) = facts::pause_exit_parameter(kind) else { return Ok(()) };
    if read(path).is_ok_and(|value| value.trim() == "0") {
        return Err(Unavailable {
            why: format!("this KVM makes no PAUSE exits: {path} is 0"),
            remedy: Some(
                "reload KVM's module with its default parameters; if it stays 0 the CPU has no pause-loop exits, and \
                 --pause-source sampler sees without them",
            ),
        });
    }
    Ok(())
}

/// Why a perf event does not open, in terms of what to do. `paranoid` is `kernel.perf_event_paranoid`.
fn refused(error: &io::Error, paranoid: Option<String>) -> Unavailable {
    let (detail, remedy) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => (
            paranoid.map_or_else(String::new, |level| format!(" (kernel.perf_event_paranoid is {level})")),
            "run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=-1",
        ),
        Some(libc::EMFILE | libc::ENFILE) => (String::new(), MORE_FILES),
        _ => (String::new(), "use a kernel with CONFIG_PERF_EVENTS and CONFIG_FTRACE, or another source"),
    };
    Unavailable { why: format!("a perf event on kvm:kvm_exit does not open: {error}{detail}"), remedy: Some(remedy) }
}

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

impl Tracepoint {
    /// Finds it.
    ///
    /// # Errors
    /// Why not, with the remedy where there is one.
    fn find(kind: KvmKind) -> Result<Self, Unavailable> {
        let reason = match kind {
            KvmKind::Vmx => VMX_PAUSE,
            KvmKind::Svm => SVM_PAUSE,
            KvmKind::Software => {
                return Err(Unavailable {
                    why: "this KVM is software-virtualised and makes no PAUSE exits".to_owned(),
                    remedy: None,
                });
            }
        };
        let (_, id) = perf::kvm_exit_id(&sysfs::read_small).map_err(|error| {
            let mounted = perf::TRACEFS.iter().any(|path| Path::new(path).join("events").is_dir());
            let (why, remedy) = if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                ("kvm:kvm_exit cannot be looked up", MORE_FILES)
            } else if mounted {
                ("there is no kvm:kvm_exit to be read", "load the kvm module, and run as root")
            } else {
                (
                    "tracefs is not mounted, or not to be entered",
                    "as root: mount -t tracefs tracefs /sys/kernel/tracing",
                )
            };
            Unavailable {
                why: format!("{why}: {}/events/kvm/kvm_exit/id: {error}", perf::TRACEFS[0]),
                remedy: Some(remedy),
            }
        })?;
        Ok(Self { id, reason })
    }

    /// Opens an event that counts, for the calling thread.
    ///
    /// # Errors
    /// The kernel's own: no privilege, no descriptors left.
    fn open(self) -> io::Result<Counter> {
        self.open_for(0, None)
    }

    /// Opens the event for the calling thread, whose id is `tid`; with a period, it signals that thread.
    fn open_for(self, tid: i32, period: Option<u64>) -> io::Result<Counter> {
        // 0 counts without ever overflowing, which costs each PAUSE exit less.
        let file = limits::spare(perf::open_tracepoint(self.id, period.unwrap_or(0))?)?;
        let filter = CString::new(format!("exit_reason == {}", self.reason)).map_err(io::Error::other)?;
        // SAFETY: the kernel reads the NUL-terminated text and keeps no reference.
        ok(unsafe { libc::ioctl(file.as_raw_fd(), PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) })?;
        if period.is_some() {
            send_signals(&file, tid)?;
        }
        Ok(Counter { file, forcing: None })
    }
}

impl Counter {
    /// What a forced exit says, and has the next one come when it should; `switches` as in [`Seen`].
    fn judged(&mut self, switches: u64) -> Verdict {
        let Some(pauses) = self.pauses() else { return Verdict::KernelFails };
        let Some(forcing) = &mut self.forcing else { return Verdict::KernelFails };
        let before = forcing.period();
        let verdict = forcing.forced(Seen { switches, pauses });
        self.changed_from(before);
        verdict
    }

    /// Has the kernel force exits at the distance that holds now, if it is another.
    fn changed_from(&self, before: u64) {
        if let Some(period) = self.forcing.map(|forcing| forcing.period()).filter(|period| *period != before) {
            self.set_period(period);
        }
    }

    /// PAUSE exits up to now; `None` where the kernel does not tell.
    fn pauses(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// From now on forces an exit every `period` PAUSE exits. If the kernel refuses it goes on as before, which costs time
    /// and does no harm.
    fn set_period(&self, period: u64) {
        // SAFETY: the kernel reads one u64 and keeps no reference.
        let _ = ok(unsafe { libc::ioctl(self.file.as_raw_fd(), PERF_EVENT_IOC_PERIOD, &raw const period) });
    }
}

impl Tap for Counter {
    fn tell(&mut self, moment: &mut Moment<'_>, seat: &Seat) -> Option<Spin> {
        // On the way back in, where an exit that was forced too late for the last run is dealt with too.
        let forced = matches!(moment, Moment::Entering) && take_forced();
        if !forced {
            return None;
        }
        seat.forced.add(1);
        match self.judged(switches().saturating_sub(seat.own_switches.get())) {
            Verdict::KernelFails => Some(Spin::default()),
            Verdict::KernelHelps => {
                seat.events.add(1);
                seat.left_to_kernel.add(1);
                None
            }
            Verdict::TooSoon => None,
        }
    }

    fn settled(&mut self, helped: bool) {
        if let Some(forcing) = &mut self.forcing {
            let before = forcing.period();
            forcing.settled(helped);
            self.changed_from(before);
        }
    }

    fn detach(&mut self, seat: &Seat) {
        // A kernel that does not tell leaves the count as it was.
        if let Some(pauses) = self.pauses() {
            seat.pause_exits.add(pauses);
        }
    }
}

/// `_IOW('$', 4, __u64)` (include/uapi/linux/perf_event.h).
const PERF_EVENT_IOC_PERIOD: libc::c_ulong = 0x4008_2404;

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
        let missing = Tracepoint::find(KvmKind::Software).unwrap_err();
        assert!(missing.why.contains("no PAUSE exits") && missing.remedy.is_none(), "{missing:?}");
    }

    #[test]
    fn a_kvm_that_intercepts_no_pause_is_no_source() {
        let says = |value: &'static str| intercepted(KvmKind::Svm, &move |_| Ok(value.to_owned()));
        let missing = says("0\n").unwrap_err();
        assert!(missing.why.contains("kvm_amd/parameters/pause_filter_count is 0"), "{missing:?}");
        assert!(says("3000\n").is_ok());
        assert!(intercepted(KvmKind::Vmx, &|_| Err(io::ErrorKind::NotFound.into())).is_ok());
    }

    #[test]
    fn what_is_refused_comes_with_what_to_do() {
        for (errno, paranoid, why, remedy) in [
            (libc::EACCES, Some("2"), "perf_event_paranoid is 2", "CAP_PERFMON"),
            (libc::EMFILE, Some("2"), "does not open", "ulimit -n"),
            (libc::ENOSYS, None, "does not open", "CONFIG_PERF_EVENTS"),
        ] {
            let missing = refused(&io::Error::from_raw_os_error(errno), paranoid.map(str::to_owned));
            assert!(missing.why.contains(why) && missing.remedy.unwrap().contains(remedy), "{missing:?}");
        }
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
