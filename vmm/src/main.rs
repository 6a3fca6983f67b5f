// SPDX-License-Identifier: Apache-2.0
//! The command `vmm`: calls the library, says what went wrong, and gives the exit status.

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use vmm::command;
use vmm::host::{allocator, stack};

fn main() -> ExitCode {
    stack::with_room(monitor)
}

fn monitor() -> ExitCode {
    let started = Instant::now();
    allocator::use_one_arena();
    match command::execute(env::args_os(), started) {
        Ok(status) => status,
        Err(error) => {
            error.tell();
            error.status().into()
        }
    }
}
