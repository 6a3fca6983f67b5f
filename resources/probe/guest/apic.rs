// SPDX-License-Identifier: Apache-2.0
//! The local APIC, in xAPIC mode through its page or in x2APIC mode through MSRs; and the one IOAPIC pin that is used.
//!
//! Intel SDM vol. 3A, rev. 083, chapter 11. Invariant: all CPUs are in the same mode, chosen before the first
//! interrupt is sent; traps.S reads the choice from `probe_x2apic`.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::hardware::cpuid;
use crate::service;

/// Vector of the timer.
pub const VECTOR_TIMER: u8 = 0x40;
/// Vector of a call that wants an answer.
pub const VECTOR_CALL: u8 = 0x41;
/// Vector that only ends a halt.
pub const VECTOR_WAKE: u8 = 0x42;
/// Vector of received serial bytes.
pub const VECTOR_SERIAL: u8 = 0x43;
/// Vector of spurious interrupts.
pub const VECTOR_SPURIOUS: u8 = 0xff;

const PAGE: usize = 0xfee0_0000;
const TASK_PRIORITY: u32 = 0x80;
const SPURIOUS: u32 = 0xf0;
const COMMAND: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
const LVT_LINT0: u32 = 0x350;
const TIMER_INITIAL: u32 = 0x380;
const TIMER_CURRENT: u32 = 0x390;
const TIMER_DIVIDE: u32 = 0x3e0;
const MASKED: u32 = 1 << 16;
const SOFTWARE_ENABLE: u32 = 1 << 8;
const DIVIDE_BY_128: u32 = 0b1010;

const MSR_APIC_BASE: u32 = 0x1b;
const BASE_ENABLE: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
const MSR_X2APIC: u32 = 0x800;

/// Delivery modes and shorthand of the interrupt command register (figure 11-12).
const INIT: u32 = 0b101 << 8 | 1 << 14;
const STARTUP: u32 = 0b110 << 8 | 1 << 14;
const FIXED: u32 = 1 << 14;
const ALL_OTHERS: u32 = 0b11 << 18;

unsafe extern "C" {
    static probe_x2apic: AtomicU32;
}

/// Whether the APICs are in x2APIC mode.
#[inline(always)]
pub fn is_x2apic() -> bool {
    // SAFETY: a word of traps.S, only ever accessed as an atomic.
    unsafe { probe_x2apic.load(Ordering::Relaxed) != 0 }
}

/// Chooses the mode for all CPUs: x2APIC if this CPU is in it already, or if an id needs it and CPUID offers it
/// (`CPUID.(EAX=01H):ECX[21]`).
pub fn choose_mode(highest_id: u32) {
    let already = service::read_msr(MSR_APIC_BASE) & BASE_X2APIC != 0;
    let offered = cpuid(1, 0)[2] >> 21 & 1 == 1;
    if already || (highest_id > 254 && offered) {
        // SAFETY: as above.
        unsafe { probe_x2apic.store(1, Ordering::Relaxed) };
    }
}

#[inline(always)]
fn write(register: u32, value: u32) {
    if is_x2apic() {
        // SAFETY: registers of the local APIC do not touch memory.
        unsafe { service::write_msr(MSR_X2APIC + (register >> 4), u64::from(value)) };
    } else {
        // SAFETY: the page is mapped uncached, and only these registers are accessed there.
        unsafe { ((PAGE + register as usize) as *mut u32).write_volatile(value) };
    }
}

fn read(register: u32) -> u32 {
    if is_x2apic() {
        service::read_msr(MSR_X2APIC + (register >> 4)) as u32
    } else {
        // SAFETY: as write.
        unsafe { ((PAGE + register as usize) as *const u32).read_volatile() }
    }
}

/// Turns this CPU's APIC on.
pub fn enable() {
    if is_x2apic() {
        let base = service::read_msr(MSR_APIC_BASE);
        // SAFETY: changes how the APIC is reached and nothing else.
        unsafe { service::write_msr(MSR_APIC_BASE, base | BASE_ENABLE | BASE_X2APIC) };
    }
    write(LVT_LINT0, MASKED);
    write(TASK_PRIORITY, 0);
    write(SPURIOUS, SOFTWARE_ENABLE | u32::from(VECTOR_SPURIOUS));
}

#[inline(always)]
fn command(destination: u32, low: u32) {
    if is_x2apic() {
        let value = u64::from(destination) << 32 | u64::from(low);
        // SAFETY: as write; interrupts reach CPUs of this guest only, and those have handlers.
        unsafe { service::write_msr(MSR_X2APIC + (COMMAND >> 4), value) };
    } else {
        write(COMMAND_HIGH, destination << 24);
        write(COMMAND, low);
    }
}

/// Puts a CPU into the state that waits for a start-up interrupt.
pub fn send_init(apic_id: u32) {
    command(apic_id, INIT);
}

/// Starts a CPU in real mode at the beginning of a page below 1 MiB.
pub fn send_startup(apic_id: u32, page: u64) {
    command(apic_id, STARTUP | (page >> 12) as u32 & 0xff);
}

/// Interrupts one CPU.
#[inline(always)]
pub fn send(apic_id: u32, vector: u8) {
    command(apic_id, FIXED | u32::from(vector));
}

/// Interrupts all CPUs but this one. CPUs that were never started do not take a fixed interrupt.
#[inline(always)]
pub fn send_to_others(vector: u8) {
    if is_x2apic() {
        command(0, ALL_OTHERS | FIXED | u32::from(vector));
    } else {
        write(COMMAND, ALL_OTHERS | FIXED | u32::from(vector));
    }
}

/// Arms the timer to fire once after a number of ticks of its own.
pub fn arm_timer(ticks: u32) {
    write(TIMER_DIVIDE, DIVIDE_BY_128);
    write(LVT_TIMER, u32::from(VECTOR_TIMER));
    write(TIMER_INITIAL, ticks.max(1));
}

/// Stops the timer.
pub fn stop_timer() {
    write(LVT_TIMER, MASKED);
    write(TIMER_INITIAL, 0);
}

/// Counts down from `u32::MAX` without an interrupt, for [`timer_count`].
pub fn run_timer_masked() {
    write(TIMER_DIVIDE, DIVIDE_BY_128);
    write(LVT_TIMER, MASKED);
    write(TIMER_INITIAL, u32::MAX);
}

/// What the timer counts down from now.
pub fn timer_count() -> u32 {
    read(TIMER_CURRENT)
}

/// Divider of the timer's clock, see [`arm_timer`].
pub const TIMER_DIVIDER: u64 = 128;

/// Routes an IOAPIC pin, edge triggered, to a vector of one CPU (Intel 82093AA data sheet, section 3.2.4).
pub fn route(ioapic: u32, pin: u32, vector: u8, apic_id: u32) {
    let set = |index: u32, value: u32| {
        // SAFETY: the select and data registers of the IOAPIC that MADT names, mapped uncached.
        unsafe {
            (ioapic as usize as *mut u32).write_volatile(index);
            ((ioapic as usize + 0x10) as *mut u32).write_volatile(value);
        }
    };
    set(0x11 + 2 * pin, apic_id << 24);
    set(0x10 + 2 * pin, u32::from(vector));
}
