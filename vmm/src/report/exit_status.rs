// SPDX-License-Identifier: Apache-2.0
//! How a run ended, as the exit status of the process tells it.
//!
//! The invariant: the numbers never change, for scripts depend on them. 32 to 34 are the ones crosvm uses with
//! `--extended-status`, so that a harness written for the one works with the other.

use std::process::ExitCode;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitStatus {
    /// The guest powered itself off, or the command did what was asked.
    PoweredOff,
    /// The monitor failed: something on the host, or a guest this host cannot run.
    MonitorError,
    /// The command line or the configuration is wrong; nothing was started.
    Usage,
    /// The guest asked for a reset.
    Reset,
    /// The guest crashed: a triple fault.
    Crash,
    /// The guest reported a panic (pvpanic device).
    Panic,
}

impl ExitStatus {
    /// Every status, in the order of its code.
    pub const ALL: [Self; 6] =
        [Self::PoweredOff, Self::MonitorError, Self::Usage, Self::Reset, Self::Crash, Self::Panic];

    /// The status of the process, as the shell's `$?` shows it.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::PoweredOff => 0,
            Self::MonitorError => 1,
            Self::Usage => 2,
            Self::Reset => 32,
            Self::Crash => 33,
            Self::Panic => 34,
        }
    }

    /// The reason in words, without a capital or a full stop, as it stands in `exit.reason` of the report.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::PoweredOff => "guest powered off",
            Self::MonitorError => "monitor error",
            Self::Usage => "usage error",
            Self::Reset => "guest reset",
            Self::Crash => "guest crash (triple fault)",
            Self::Panic => "guest panic",
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones() {
        assert_eq!(ExitStatus::ALL.map(ExitStatus::code), [0, 1, 2, 32, 33, 34]);
    }
}
