// SPDX-License-Identifier: Apache-2.0
//! What ring 3 asks of ring 0: model-specific registers, halting, whole strings to the serial port, ring 0 itself.
//!
//! One safe function per service of traps.S. Invariant: the numbers are the order of `service_table` there.

use core::sync::atomic::AtomicU32;

const READ_MSR: u64 = 0;
const WRITE_MSR: u64 = 1;
const HALT_WHILE: u64 = 2;
const WRITE_SERIAL: u64 = 3;
const INTERRUPTS: u64 = 5;
const TRIPLE_FAULT: u64 = 6;
const STOP: u64 = 7;

const RFLAGS_IF: u64 = 1 << 9;

unsafe extern "C" {
    fn probe_service(number: u64, a: u64, b: u64) -> u64;
    fn probe_call_ring0(function: extern "C" fn(u64), argument: u64);
}

/// Reads a model-specific register; one that does not exist is a fault.
pub fn read_msr(msr: u32) -> u64 {
    // SAFETY: reading the registers this guest names has no effect on memory.
    unsafe { probe_service(READ_MSR, u64::from(msr), 0) }
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must not take the ground away from running code (paging, descriptors).
pub unsafe fn write_msr(msr: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { probe_service(WRITE_MSR, u64::from(msr), value) };
}

/// Halts this CPU until an interrupt, unless `word` has already moved on from `value`.
pub fn halt_while(word: &AtomicU32, value: u32) {
    // SAFETY: reads the word, which the reference keeps valid.
    unsafe { probe_service(HALT_WHILE, word.as_ptr() as u64, u64::from(value)) };
}

/// Writes bytes to COM1.
pub fn write_serial(bytes: &[u8]) {
    // SAFETY: reads the bytes, which the reference keeps valid.
    unsafe { probe_service(WRITE_SERIAL, bytes.as_ptr() as u64, bytes.len() as u64) };
}

/// Lets interrupts in, or keeps them out.
pub fn set_interrupts(on: bool) {
    // SAFETY: every interrupt that this guest unmasks has a handler that preserves all registers.
    unsafe { probe_service(INTERRUPTS, if on { RFLAGS_IF } else { 0 }, 0) };
}

/// Runs `function(argument)` in ring 0, on this stack.
///
/// # Safety
/// The function must stay within what an emulated ring 0 executes: no SSE, no popcnt, no int3.
pub unsafe fn call_ring0(function: extern "C" fn(u64), argument: u64) {
    // SAFETY: the caller's promise.
    unsafe { probe_call_ring0(function, argument) }
}

/// Shuts this CPU down by an exception without handlers.
pub fn triple_fault() -> ! {
    // SAFETY: does not come back.
    unsafe { probe_service(TRIPLE_FAULT, 0, 0) };
    stop()
}

/// Halts this CPU with interrupts off, for ever.
pub fn stop() -> ! {
    loop {
        // SAFETY: does not come back.
        unsafe { probe_service(STOP, 0, 0) };
    }
}
