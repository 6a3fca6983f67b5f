// SPDX-License-Identifier: Apache-2.0
//! Which ways of emulating are sound, and why the others are refused.
//!
//! Place in the flow: host shape, threading asked for and the emulator's version go in; the threading to use or a refusal
//! with its reason comes out, before anything is started. Invariant: a setting that was seen to corrupt the lab host is never
//! run, so a failure inside can be blamed on what runs inside. The measurements are in docs/lab.md.

use std::fmt;

use thiserror::Error;

/// QEMU below this dies in the lab kernel's jump-label patching as soon as a tracepoint is switched on under load.
const QEMU_MAJOR_FOR_SEVERAL_CPUS: u32 = 10;
/// The oldest QEMU the single-processor setting was measured with.
const QEMU_OLDEST: Version = Version { major: 7, minor: 2 };

/// Before this QEMU, `VMRUN` and `#VMEXIT` change a processor's pending interrupts (`CPUState::interrupt_request`) by a plain
/// read-modify-write (target/i386/tcg, svm_helper.c: `helper_vmrun`, `do_vmexit`), while the thread that runs the timers
/// sets its bit in the same word. A bit that is lost is a timer interrupt that the lab host never takes: it waits for ever,
/// or a spinning guest is never interrupted again. Seen in 7.2.22; the same in the source of 10.0.2; 11.1.3 uses atomics.
const QEMU_ATOMIC_INTERRUPTS: Version = Version { major: 11, minor: 0 };

/// Version of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Number before the first dot.
    pub major: u32,
    /// Number after it.
    pub minor: u32,
}

impl Version {
    /// Reads the first line of `qemu-system-x86_64 --version`.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let text = line.strip_prefix("QEMU emulator version ")?;
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How the emulator runs its processors: all on one thread in turn, or each on a thread of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threading {
    /// `-accel tcg,thread=single`
    Single,
    /// `-accel tcg,thread=multi`
    Multi,
}

impl Threading {
    /// The word QEMU knows it by.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
        }
    }
}

/// A setting that is known to break the lab host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unsound {
    /// Several processors need QEMU 10.
    #[error(
        "{cpus} emulated processors on QEMU {version}: such a lab host dies (Oops: int3) when a tracepoint is switched on under \
         load; use QEMU {QEMU_MAJOR_FOR_SEVERAL_CPUS} or later, or one processor"
    )]
    OldQemu {
        /// Processors asked for.
        cpus: u32,
        /// The emulator found.
        version: Version,
    },
    /// Several processors must not share one thread.
    #[error(
        "{cpus} emulated processors with thread=single: guests of 8 vCPUs were left stuck; use thread=multi, or one processor"
    )]
    SharedThread {
        /// Processors asked for.
        cpus: u32,
    },
    /// Instructions are counted on one thread only.
    #[error(
        "{cpus} emulated processors with time by instructions: QEMU counts them on one thread only; use one processor"
    )]
    CountedTime {
        /// Processors asked for.
        cpus: u32,
    },
    /// Never measured, so nothing can be said for it.
    #[error("QEMU {version} was never measured as a lab; use {QEMU_OLDEST} or later")]
    UnknownQemu {
        /// The emulator found.
        version: Version,
    },
}

/// The threading to use for a host of `cpus` processors: what was asked for, or what is sound.
pub fn check(cpus: u32, asked: Option<Threading>, version: Version) -> Result<Threading, Unsound> {
    if version < QEMU_OLDEST {
        return Err(Unsound::UnknownQemu { version });
    }
    if cpus == 1 {
        return Ok(asked.unwrap_or(Threading::Single));
    }
    if asked == Some(Threading::Single) {
        return Err(Unsound::SharedThread { cpus });
    }
    if version.major < QEMU_MAJOR_FOR_SEVERAL_CPUS {
        return Err(Unsound::OldQemu { cpus, version });
    }
    Ok(Threading::Multi)
}

/// Whether all threads of this emulator must share one real processor. There the instruction that changes the pending
/// interrupts cannot overlap with another thread's, so none is lost.
#[must_use]
pub fn wants_one_real_cpu(version: Version) -> bool {
    version < QEMU_ATOMIC_INTERRUPTS
}

/// How often a lab host of this size may be started in one run, the first time included, unless the caller says otherwise.
/// With one processor the emulator is sound, so its failure is a finding and is reported at once.
#[must_use]
pub fn starts(cpus: u32) -> u32 {
    if cpus > 1 { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V7: Version = Version { major: 7, minor: 2 };
    const V10: Version = Version { major: 10, minor: 0 };

    #[test]
    fn debian_versions_are_read() {
        assert_eq!(Version::parse("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)"), Some(V7));
        assert_eq!(Version::parse("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)"), Some(V10));
        assert_eq!(Version::parse("bash: not found"), None);
    }

    #[test]
    fn one_processor_is_the_sound_setting() {
        assert_eq!(check(1, None, V7), Ok(Threading::Single));
        assert_eq!(check(1, Some(Threading::Single), V10), Ok(Threading::Single));
    }

    #[test]
    fn several_processors_want_qemu_10_and_a_thread_each() {
        assert_eq!(check(2, None, V10), Ok(Threading::Multi));
        assert_eq!(check(2, None, V7), Err(Unsound::OldQemu { cpus: 2, version: V7 }));
        assert_eq!(check(8, Some(Threading::Single), V10), Err(Unsound::SharedThread { cpus: 8 }));
        assert_eq!(check(8, Some(Threading::Single), V7), Err(Unsound::SharedThread { cpus: 8 }));
    }

    #[test]
    fn an_unmeasured_emulator_is_refused() {
        let version = Version { major: 6, minor: 2 };
        assert_eq!(check(1, None, version), Err(Unsound::UnknownQemu { version }));
    }

    #[test]
    fn only_a_lab_host_with_several_processors_gets_a_second_try_and_only_one() {
        assert_eq!([starts(1), starts(2), starts(255)], [1, 2, 2]);
    }
}
