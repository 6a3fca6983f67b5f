// SPDX-License-Identifier: Apache-2.0
//! Measures `vmm` and the bare C program beside it, one after the other and many times, and prints a table.
//!
//!     bench [PAIRS [FLAG...]]
//!
//! The flags are the monitor's. Takes the `vmm` that was built into the directory this program is in, builds `bare.c` and `payload.S` with `cc`, and
//! needs `/dev/kvm`. Invariant: both programs run the same image, and whoever runs first changes from pair to pair.

mod build;
mod memory;
mod paired;
mod process;

use std::env;
use std::process::ExitCode;

use build::{Programs, Subject};
use paired::{Pairs, Row};
use process::Failure;

/// Pairs of runs of each figure, unless told otherwise.
const PAIRS: usize = 20;
/// The sizes of machine that are measured.
const VCPUS: [u32; 2] = [1, 32];
/// Port writes of one run: a second or two where ring 0 is emulated.
const PORT_WRITES: u32 = 50_000;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let pairs = arguments.next().map_or(Ok(PAIRS), |text| text.parse());
    let Ok(pairs @ 1..) = pairs else {
        eprintln!("bench: PAIRS is a number from 1");
        return ExitCode::from(2);
    };
    match measure(pairs, arguments.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(pairs: usize, flags: Vec<String>) -> Result<(), Failure> {
    let programs = Programs::build(PORT_WRITES, flags)?;
    println!("{pairs} pairs a figure; median (least to most)\n");
    println!("{}", Row::HEADER);
    for vcpus in VCPUS {
        let times = Pairs::measure(pairs, |subject| {
            let running = programs.start(subject, &programs.halting, vcpus)?;
            Ok(running.first_byte.as_secs_f64() * 1e3)
        })?;
        println!("{}", times.row(&format!("exec to first byte, {vcpus} vCPUs"), "ms"));
    }
    for vcpus in VCPUS {
        let uses = Pairs::measure(pairs, |subject| {
            let running = programs.start(subject, &programs.halting, vcpus)?;
            memory::beyond_guest(running.pid())
        })?;
        println!("{}", uses.map(|used| used.peak_kib).row(&format!("peak memory, {vcpus} vCPUs"), "KiB"));
        println!("{}", uses.map(|used| used.anonymous_kib).row(&format!("anonymous memory, {vcpus} vCPUs"), "KiB"));
    }
    let exits = Pairs::measure(pairs, |subject| {
        let running = programs.start(subject, &programs.writing, 1)?;
        Ok(running.until_end()?.as_secs_f64() * 1e6 / f64::from(PORT_WRITES))
    })?;
    println!("{}", exits.row("port write and back", "us"));
    Ok(())
}

impl Subject {
    /// The other one.
    const fn other(self) -> Self {
        match self {
            Self::Vmm => Self::Bare,
            Self::Bare => Self::Vmm,
        }
    }
}
