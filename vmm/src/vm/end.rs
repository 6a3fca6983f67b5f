// SPDX-License-Identifier: Apache-2.0
//! How a run ends: noted once by whoever sees it first, and told to the event loop.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use devices::system::{SystemEvent, SystemEvents};
use topology::id::VcpuIndex;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::kvm::exit::SUBERROR_EMULATION;
use crate::report::ExitStatus;
use crate::vcpu::run_loop::End;
use crate::vcpu::thread::EndListener;

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest powered itself off.
    PoweredOff,
    /// The guest reset the machine.
    Reset,
    /// The operator reset the machine: it is put together anew and started again.
    Restart,
    /// The guest reported a panic.
    Panic,
    /// A vCPU took a triple fault.
    TripleFault {
        /// Which.
        vcpu: VcpuIndex,
    },
    /// The operator ended the run.
    Stopped(StopCause),
    /// The guest's output can no longer be written.
    ConsoleLost {
        /// The kernel's error number.
        errno: i32,
    },
    /// A vCPU cannot go on.
    Broken {
        /// Which.
        vcpu: VcpuIndex,
        /// What happened; never [`End::Asked`] or [`End::TripleFault`].
        end: End,
    },
}

/// What made the operator's wish come true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// A signal that ends at once, or Ctrl-A x.
    Immediate,
    /// A client of the control API.
    Api,
    /// SIGTERM, and the guest has no handler for its power button.
    NobodyListens,
    /// SIGTERM, and the guest did not power off in time.
    Deadline,
}

impl Outcome {
    /// The exit status of the process.
    #[must_use]
    pub const fn status(&self) -> ExitStatus {
        match self {
            Self::PoweredOff | Self::Stopped(_) => ExitStatus::PoweredOff,
            Self::Reset | Self::Restart => ExitStatus::Reset,
            Self::Panic => ExitStatus::Panic,
            Self::TripleFault { .. } => ExitStatus::Crash,
            Self::ConsoleLost { .. } | Self::Broken { .. } => ExitStatus::MonitorError,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoweredOff => f.write_str("guest powered off"),
            Self::Reset => f.write_str("guest reset"),
            Self::Restart => f.write_str("reset by the operator"),
            Self::Panic => f.write_str("guest panic"),
            Self::TripleFault { vcpu } => write!(f, "guest crash (triple fault on vCPU {vcpu})"),
            Self::Stopped(StopCause::Immediate) => f.write_str("stopped by the operator"),
            Self::Stopped(StopCause::Api) => f.write_str("stopped through the control API"),
            Self::Stopped(StopCause::NobodyListens) => {
                f.write_str("stopped by SIGTERM; the guest does not listen to its power button")
            }
            Self::Stopped(StopCause::Deadline) => {
                f.write_str("stopped by SIGTERM; the guest did not power off in time")
            }
            Self::ConsoleLost { errno } => write!(
                f,
                "the guest's console cannot be written: {}; keep its reader alive, or use --serial file=PATH or none",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::Broken { vcpu, end } => write!(f, "vCPU {vcpu} cannot go on: {}", Explanation(end)),
        }
    }
}

/// What to do when KVM gave up and the guest is not to blame.
const ANOTHER_HOST: &str = "; look for lines of kvm in the host's kernel log (dmesg), and try the same guest on another \
                            kernel: `vmm lab -- ARGS...` has one";

/// What to do after `KVM_RUN` failed.
const fn after_failed_run(errno: i32) -> &'static str {
    match errno {
        libc::EFAULT => {
            "; the host did not give a page of guest memory: look at its free memory, the memory cgroup's limit and the \
             kernel log (dmesg)"
        }
        libc::ENOMEM => "; free memory on the host, or raise the memory cgroup's limit",
        _ => ANOTHER_HOST,
    }
}

/// A vCPU's end in words.
struct Explanation<'a>(&'a End);

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            End::Asked => f.write_str("it was asked to end"),
            End::TripleFault => f.write_str("triple fault"),
            End::SystemEvent { kind } => write!(f, "KVM reports system event {kind}"),
            End::EntryFailed { hardware_reason, host_cpu } => write!(
                f,
                "the processor refused to enter the guest on host CPU {host_cpu} (hardware reason \
                 {hardware_reason:#x}); the host's kernel log (dmesg) shows the state that was refused if \
                 /sys/module/kvm_intel/parameters/dump_invalid_vmcs or dump_invalid_vmcb of kvm_amd is Y"
            ),
            End::InternalError { error, rip } if error.suberror == SUBERROR_EMULATION => {
                f.write_str("KVM cannot emulate the instruction")?;
                if let Some(instruction) = &error.instruction {
                    for byte in instruction.as_slice() {
                        write!(f, " {byte:02x}")?;
                    }
                }
                if let Some(rip) = rip {
                    write!(f, " at RIP {rip:#x}")?;
                }
                f.write_str(
                    "; on a host whose KVM is software-virtualised guest ring 0 runs in KVM's instruction emulator, \
                     which does not know every instruction (`vmm host` tells which kind this host is); `vmm lab -- ARGS...` \
                     runs the same guest on an emulated host that has hardware virtualisation",
                )
            }
            End::InternalError { error, rip } => {
                write!(f, "KVM gave up (KVM_EXIT_INTERNAL_ERROR, suberror {})", error.suberror)?;
                if let Some(rip) = rip {
                    write!(f, " at RIP {rip:#x}")?;
                }
                f.write_str(ANOTHER_HOST)
            }
            End::UnknownExit { kind, reason } => {
                write!(f, "KVM made an exit this monitor does not know: {kind} ({reason})")
            }
            End::RunFailed { errno } => {
                write!(f, "KVM_RUN failed: {}{}", io::Error::from_raw_os_error(*errno), after_failed_run(*errno))
            }
        }
    }
}

/// Where the end of the run is noted. The first note counts; later ones are consequences of it.
#[derive(Debug)]
pub struct EndNote {
    outcome: Mutex<Option<Outcome>>,
    noted: EventFd,
    crash_loaded: AtomicU64,
    unsupported_sleeps: AtomicU64,
}

/// Events that end nothing: the guest goes on by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrugged {
    /// Panics with a crash kernel loaded, which takes over.
    pub crash_loaded: u64,
    /// Requests for a sleep state that the machine does not have; the guest stays awake.
    pub unsupported_sleeps: u64,
}

impl EndNote {
    /// Nothing noted.
    ///
    /// # Errors
    /// The kernel's own: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            outcome: Mutex::new(None),
            noted: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            crash_loaded: AtomicU64::new(0),
            unsupported_sleeps: AtomicU64::new(0),
        })
    }

    /// The events so far that ended nothing.
    #[must_use]
    pub fn shrugged(&self) -> Shrugged {
        // Relaxed: counters are independent of each other and of everything else.
        Shrugged {
            crash_loaded: self.crash_loaded.load(Ordering::Relaxed),
            unsupported_sleeps: self.unsupported_sleeps.load(Ordering::Relaxed),
        }
    }

    /// Notes how the run ends, unless that is known already. Never blocks.
    pub fn note(&self, outcome: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        // The counter of a non-blocking eventfd can only be full of earlier notes.
        let _ = self.noted.write(1);
    }

    /// Readable once the end is noted.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.noted
    }

    /// Whether the end is noted.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the note, leaving none.
    #[must_use]
    pub fn take(&self) -> Option<Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl SystemEvents for EndNote {
    fn system_event(&self, event: SystemEvent) {
        match event {
            SystemEvent::PowerOff => self.note(Outcome::PoweredOff),
            SystemEvent::Reset(_) => self.note(Outcome::Reset),
            SystemEvent::Panic => self.note(Outcome::Panic),
            SystemEvent::CrashLoaded => count(&self.crash_loaded),
            SystemEvent::UnsupportedSleep { .. } => count(&self.unsupported_sleeps),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl EndListener for EndNote {
    fn vcpu_ended(&self, vcpu: VcpuIndex, end: End) {
        self.note(match end {
            End::TripleFault => Outcome::TripleFault { vcpu },
            end => Outcome::Broken { vcpu, end },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvm::exit::InternalError;

    #[test]
    fn the_first_note_counts() {
        let note = EndNote::new().unwrap();
        note.system_event(SystemEvent::CrashLoaded);
        note.system_event(SystemEvent::UnsupportedSleep { sleep_type: 3 });
        assert!(!note.is_noted());
        assert_eq!(note.shrugged(), Shrugged { crash_loaded: 1, unsupported_sleeps: 1 });
        note.system_event(SystemEvent::Panic);
        note.system_event(SystemEvent::Reset(devices::system::ResetSource::KeyboardController));
        assert_eq!(note.take(), Some(Outcome::Panic));
    }

    #[test]
    fn every_end_that_the_host_is_to_blame_for_names_a_next_step() {
        let gave_up = InternalError { suberror: SUBERROR_EMULATION + 1, instruction: None };
        for (end, step) in [
            (End::EntryFailed { hardware_reason: 0x8000_0021, host_cpu: 1 }, "dump_invalid_vmcs"),
            (End::InternalError { error: gave_up, rip: Some(0x1000) }, "vmm lab --"),
            (End::RunFailed { errno: libc::EFAULT }, "memory cgroup"),
            (End::RunFailed { errno: libc::ENOMEM }, "free memory"),
            (End::RunFailed { errno: libc::EINVAL }, "dmesg"),
        ] {
            let text = Outcome::Broken { vcpu: VcpuIndex(0), end }.to_string();
            assert!(text.contains(step), "{text}");
        }
    }

    #[test]
    fn an_instruction_that_cannot_be_emulated_is_explained() {
        let error = InternalError { suberror: SUBERROR_EMULATION, instruction: None };
        let outcome = Outcome::Broken { vcpu: VcpuIndex(3), end: End::InternalError { error, rip: Some(0x10_0040) } };
        let text = outcome.to_string();
        assert!(
            ["vCPU 3", "0x100040", "software-virtualised", "vmm lab --"].iter().all(|part| text.contains(part)),
            "{text}"
        );
        assert_eq!(outcome.status(), ExitStatus::MonitorError);
    }
}
