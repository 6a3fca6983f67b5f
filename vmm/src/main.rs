// SPDX-License-Identifier: Apache-2.0
//! The command `vmm`.

use std::process::ExitCode;

use vmm::report::ExitStatus;

fn main() -> ExitCode {
    ExitStatus::PoweredOff.into()
}
