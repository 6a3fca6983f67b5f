// SPDX-License-Identifier: Apache-2.0
//! What arrives on COM1, by interrupt through the IOAPIC: echoed until a line `quit`, or waited for until a line ends.
//!
//! Invariant: the pending word is cleared before the receiver is emptied, so that a byte that arrives in between
//! raises it again.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::acpi::{self, Root};
use crate::apic;
use crate::block::Block;
use crate::memory::Identity;
use crate::power;
use crate::record::{Status, Waiting};
use crate::serial;
use crate::service;
use crate::smp;

/// COM1's interrupt: ISA interrupt 4, which no override of ours moves.
const PIN: u32 = 4;

unsafe extern "C" {
    static probe_serial_pending: AtomicU32;
}

/// Echoes until a line `quit`.
pub(super) fn run(first: &Block, root: &Root) {
    let mut line = Tail::default();
    let ready = || serial::say!("probe: echo until a line \"quit\"");
    each_byte(first, root, ready, |byte| {
        serial::send(if byte == b'\r' { b"\n" } else { core::slice::from_ref(&byte) });
        line.push(byte)
    });
}

/// Waits until a line ends.
pub(super) fn wait_for_line(first: &Block, root: &Root) {
    let cpus = smp::present().count() as u32;
    each_byte(first, root, || serial::say!("{}", Waiting { cpus }), |byte| byte == b'\r' || byte == b'\n');
}

/// Hands each byte that arrives to `take` until that is true; calls `ready` when none will be lost any more.
fn each_byte(first: &Block, root: &Root, ready: impl FnOnce(), mut take: impl FnMut(u8) -> bool) {
    // SAFETY: a word of traps.S, only ever accessed as an atomic.
    let pending = unsafe { &probe_serial_pending };
    let ioapic = root.table(&Identity, b"APIC").and_then(acpi::ioapic);
    let ioapic = ioapic.unwrap_or_else(|| power::fail(Status::Machine, "missing", "ioapic"));
    apic::route(ioapic, PIN, apic::VECTOR_SERIAL, first.apic_id.load(Ordering::Relaxed));
    serial::listen();
    ready();
    loop {
        pending.store(0, Ordering::Relaxed);
        while let Some(byte) = serial::receive() {
            if take(byte) {
                return;
            }
        }
        service::halt_while(pending, 0);
    }
}

/// The line so far, as far as it matters.
#[derive(Default)]
struct Tail {
    bytes: [u8; 5],
    len: usize,
}

impl Tail {
    /// Takes a byte; true if it ends a line that says quit.
    fn push(&mut self, byte: u8) -> bool {
        if byte == b'\r' || byte == b'\n' {
            let quit = self.len == 4 && self.bytes.starts_with(b"quit");
            self.len = 0;
            return quit;
        }
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
        false
    }
}
