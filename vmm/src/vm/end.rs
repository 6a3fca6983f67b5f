// SPDX-License-Identifier: Apache-2.0
//! How a run ends: noted once by whoever sees it first, and told to the event loop.

use std::fmt;
use std::io;
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
            Self::Reset => ExitStatus::Reset,
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
            Self::Panic => f.write_str("guest panic"),
            Self::TripleFault { vcpu } => write!(f, "guest crash (triple fault on vCPU {vcpu})"),
            Self::Stopped(StopCause::Immediate) => f.write_str("stopped by the operator"),
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
                 {hardware_reason:#x}); is the host itself a guest without nested virtualisation?"
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
                rip.map_or(Ok(()), |rip| write!(f, " at RIP {rip:#x}"))
            }
            End::UnknownExit { kind, reason } => {
                write!(f, "KVM made an exit this monitor does not know: {kind} ({reason})")
            }
            End::RunFailed { errno } => write!(f, "KVM_RUN failed: {}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Where the end of the run is noted. The first note counts; later ones are consequences of it.
#[derive(Debug)]
pub struct EndNote {
    outcome: Mutex<Option<Outcome>>,
    noted: EventFd,
}

impl EndNote {
    /// Nothing noted.
    ///
    /// # Errors
    /// The kernel's own: no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { outcome: Mutex::new(None), noted: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)? })
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
            // The guest goes on by itself: its crash kernel takes over, or it stays awake.
            SystemEvent::CrashLoaded | SystemEvent::UnsupportedSleep { .. } => {}
        }
    }
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
        assert!(!note.is_noted());
        note.system_event(SystemEvent::Panic);
        note.system_event(SystemEvent::Reset(devices::system::ResetSource::KeyboardController));
        assert_eq!(note.take(), Some(Outcome::Panic));
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
