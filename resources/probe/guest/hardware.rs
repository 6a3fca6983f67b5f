// SPDX-License-Identifier: Apache-2.0
//! Single instructions: ports, CPUID, the time-stamp counter, and the memory functions that the compiler calls.
//!
//! Everything here works in ring 3, because IOPL is 3. Invariant: the memory functions use string instructions only, so
//! that ring 0 can be handed code that calls them.

use core::arch::asm;

/// Writes a byte to a port.
pub fn out8(port: u16, value: u8) {
    // SAFETY: no port of this platform writes to memory of the guest.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// Writes 16 bits to a port.
pub fn out16(port: u16, value: u16) {
    // SAFETY: as out8.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack, preserves_flags)) };
}

/// Writes 32 bits to a port, with a count in ECX for those ports that look at it.
#[inline(always)]
pub fn out32_with_count(port: u16, value: u32, count: u32) {
    // SAFETY: as out8.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, in("ecx") count, options(nomem, nostack, preserves_flags));
    }
}

/// As [`out32_with_count`], for a port that answers in ECX.
#[inline(always)]
pub fn out32_answered(port: u16, value: u32, count: u32) -> u32 {
    let answer;
    // SAFETY: as out8.
    unsafe {
        asm!(
            "out dx, eax", in("dx") port, in("eax") value, inout("ecx") count => answer,
            options(nomem, nostack, preserves_flags)
        );
    }
    answer
}

/// Reads a byte from a port.
pub fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as out8.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// CPUID: EAX, EBX, ECX, EDX of a leaf and subleaf.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let r = core::arch::x86_64::__cpuid_count(leaf, subleaf);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// The time-stamp counter. Differences are meaningful within one ring only: an emulated ring 0 may have an offset.
#[inline(always)]
pub fn tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter; CR4.TSD is clear.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Copies by string instruction.
///
/// # Safety
/// As C's memcpy.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.memcpy")]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise; the direction flag is clear throughout.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// Copies between places that may overlap.
///
/// # Safety
/// As C's memmove.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= len {
        // SAFETY: copying upwards never overwrites what is still to be read.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller's promise; the direction flag is set for these instructions only.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") len => _, inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
             inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// Fills by string instruction.
///
/// # Safety
/// As C's memset.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot.memset")]
pub unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("eax") value,
             options(nostack, preserves_flags));
    }
    to
}

/// Compares bytes.
///
/// # Safety
/// As C's memcmp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: the caller's promise; volatile, lest the loop become a call of this function.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
    }
    0
}

/// Compares bytes for equality.
///
/// # Safety
/// As C's memcmp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { memcmp(a, b, len) }
}
