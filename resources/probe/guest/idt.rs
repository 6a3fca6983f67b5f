// SPDX-License-Identifier: Apache-2.0
//! The interrupt table, filled in from ring 3; boot.S has already told the CPU where it is.
//!
//! Invariant: the table is complete before an interrupt is let in, and every vector in use has a handler of traps.S.

use core::cell::UnsafeCell;

use crate::apic;

#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written by the first CPU before any other is started.
unsafe impl Sync for Table {}

#[unsafe(no_mangle)]
static probe_idt: Table = Table(UnsafeCell::new([[0; 2]; 256]));

unsafe extern "C" {
    fn probe_exception_stubs();
    fn probe_on_invalid_opcode();
    fn probe_on_timer();
    fn probe_on_call();
    fn probe_on_wake();
    fn probe_on_serial();
    fn probe_on_spurious();
}

const KERNEL_CODE: u64 = 0x10;
/// A present 64-bit interrupt gate for ring 0 (Intel SDM vol. 3A, figure 7-8).
const INTERRUPT_GATE: u64 = 0x8e00;

const fn gate(handler: u64) -> [u64; 2] {
    [(handler & 0xffff) | KERNEL_CODE << 16 | INTERRUPT_GATE << 32 | (handler >> 16 & 0xffff) << 48, handler >> 32]
}

/// Fills the table. Called once, by the first CPU, before anything else.
pub fn fill() {
    let address = |handler: unsafe extern "C" fn()| handler as *const () as u64;
    let stubs = address(probe_exception_stubs);
    let interrupts = [
        (6, address(probe_on_invalid_opcode)),
        (apic::VECTOR_TIMER, address(probe_on_timer)),
        (apic::VECTOR_CALL, address(probe_on_call)),
        (apic::VECTOR_WAKE, address(probe_on_wake)),
        (apic::VECTOR_SERIAL, address(probe_on_serial)),
        (apic::VECTOR_SPURIOUS, address(probe_on_spurious)),
    ];
    // SAFETY: the first CPU runs alone, with interrupts off.
    let table = unsafe { &mut *probe_idt.0.get() };
    for (entry, vector) in table.iter_mut().zip(0..32) {
        *entry = gate(stubs + 16 * vector);
    }
    for (vector, handler) in interrupts {
        if let Some(entry) = table.get_mut(usize::from(vector)) {
            *entry = gate(handler);
        }
    }
}
