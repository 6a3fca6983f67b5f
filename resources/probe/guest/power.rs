// SPDX-License-Identifier: Apache-2.0
//! The ways a run ends.
//!
//! Invariant: every run ends with a `done` line, and one that did not go well also with a report to the pvpanic device,
//! so that the monitor's exit status tells it from one that did.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::acpi::Power;
use crate::hardware::{out8, out16};
use crate::record::{Done, Error, Status};
use crate::serial::say;
use crate::service;
use crate::value::Word;

/// The pvpanic device's port and its bit for a panic (QEMU docs/specs/pvpanic.rst).
const PVPANIC: u16 = 0x505;
const PANICKED: u8 = 1;

struct Known(UnsafeCell<Power>);

// SAFETY: written once by the first CPU, before `KNOWN_SET` is set.
unsafe impl Sync for Known {}

static KNOWN: Known = Known(UnsafeCell::new(Power { sleep_control: None, pm1a_control: None, reset: None }));
static KNOWN_SET: AtomicBool = AtomicBool::new(false);

/// Keeps what ACPI says, for whoever ends the run. Called once, by the first CPU.
pub fn remember(power: Power) {
    // SAFETY: nobody reads it before the flag.
    unsafe { KNOWN.0.get().write(power) };
    KNOWN_SET.store(true, Ordering::Release);
}

fn known() -> Power {
    // SAFETY: written before the flag, never after.
    if KNOWN_SET.load(Ordering::Acquire) { unsafe { *KNOWN.0.get() } } else { Power::default() }
}

/// Ends the run.
pub fn end(status: Status) -> ! {
    say!("{}", Done { status });
    if status != Status::Ok {
        panic_device();
    }
    let power = known();
    if let Some((port, value)) = power.sleep_control {
        out8(port, value);
    }
    if let Some((port, value)) = power.pm1a_control {
        out16(port, value);
    }
    service::stop()
}

/// Says what is wrong and ends the run.
pub fn fail(status: Status, reason: &str, detail: &str) -> ! {
    say!("{}", Error { reason: Word::new(reason.as_bytes()), detail: Word::new(detail.as_bytes()) });
    end(status)
}

/// Says that the machine has too little memory for what was asked, and ends the run.
pub fn out_of_memory<T>() -> T {
    fail(Status::Machine, "too-little", "memory")
}

/// Reports a panic to the host.
pub fn panic_device() {
    out8(PVPANIC, PANICKED);
}

/// Resets the machine by the register that the FADT names, or says that there is none.
pub fn reset() -> ! {
    let Some((port, value)) = known().reset else { fail(Status::Machine, "missing", "reset-register") };
    out8(port, value);
    fail(Status::Machine, "survived", "reset-register")
}

/// Asks the keyboard controller to pulse the reset line (command 0xFE).
pub fn i8042_reset() -> ! {
    out8(0x64, 0xfe);
    fail(Status::Machine, "survived", "i8042-reset")
}
