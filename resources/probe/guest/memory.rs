// SPDX-License-Identifier: Apache-2.0
//! What the loader handed over, and the memory that is left to use.
//!
//! Everything of the loader's is copied out first ([`BootInfo::read`]), so that any RAM beyond the image may be used
//! afterwards. Invariant: memory is handed out once, from the RAM range that holds the image, above it.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use crate::acpi::PhysicalMemory;
use crate::record::Protocol;

/// All memory below 4 GiB, as boot.S maps it.
pub struct Identity;

impl PhysicalMemory for Identity {
    fn bytes(&self, address: u64, len: usize) -> Option<&'static [u8]> {
        let end = address.checked_add(len as u64)?;
        // SAFETY: the range is mapped. What is looked at there (boot information, tables) does not change.
        (address != 0 && end <= 1 << 32).then(|| unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }
}

/// A value that only the first CPU touches, and only once it runs alone or the others only read it.
pub struct FirstCpu<T>(UnsafeCell<T>);

// SAFETY: see `get`.
unsafe impl<T> Sync for FirstCpu<T> {}

impl<T> FirstCpu<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The value.
    ///
    /// # Safety
    /// Called once, by the first CPU.
    #[allow(clippy::mut_from_ref, reason = "called once, as the caller promises")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}

/// A range of RAM.
#[derive(Clone, Copy)]
pub struct Ram {
    /// Where it begins.
    pub start: u64,
    /// How long it is.
    pub len: u64,
}

const RANGES_MAX: usize = 128;
const COMMAND_LINE_MAX: usize = 2048;

/// A copy of what the loader handed over.
pub struct BootInfo {
    /// By which protocol.
    pub protocol: Protocol,
    /// The ACPI root pointer, if it was named.
    pub rsdp: Option<u64>,
    ranges: [Ram; RANGES_MAX],
    ranges_len: usize,
    command_line: [u8; COMMAND_LINE_MAX],
    command_line_len: usize,
}

static BOOT: FirstCpu<BootInfo> = FirstCpu::new(BootInfo {
    protocol: Protocol::Pvh,
    rsdp: None,
    ranges: [Ram { start: 0, len: 0 }; RANGES_MAX],
    ranges_len: 0,
    command_line: [0; COMMAND_LINE_MAX],
    command_line_len: 0,
});

unsafe extern "C" {
    static probe_boot_info: u64;
    static probe_boot_protocol: u32;
    static probe_image_end: u8;
}

const PVH_MAGIC: u64 = 0x336e_c578;
const TYPE_RAM: u64 = 1;

/// A little-endian number of up to 8 bytes somewhere in memory.
fn number(address: u64, len: usize) -> Option<u64> {
    let mut value = [0; 8];
    value.get_mut(..len)?.copy_from_slice(Identity.bytes(address, len)?);
    Some(u64::from_le_bytes(value))
}

impl BootInfo {
    /// Copies it. Called once, first thing.
    ///
    /// # Errors
    /// The fixed word for what is missing.
    pub fn read() -> Result<&'static Self, &'static str> {
        // SAFETY: boot.S wrote both before anything else ran; this is the one call.
        let (info, protocol, boot) = unsafe { (probe_boot_info, probe_boot_protocol, BOOT.get()) };
        let read = if protocol == 1 { boot.read_pvh(info) } else { boot.read_linux(info) };
        read.map(|()| &*boot).ok_or("boot-information")
    }

    /// xen/include/public/arch-x86/hvm/start_info.h, version 1.
    fn read_pvh(&mut self, info: u64) -> Option<()> {
        self.protocol = Protocol::Pvh;
        if number(info, 4)? != PVH_MAGIC || number(info + 4, 4)? < 1 {
            return None;
        }
        self.rsdp = Some(number(info + 32, 8)?).filter(|address| *address != 0);
        self.copy_command_line(number(info + 24, 8)?, COMMAND_LINE_MAX);
        let (map, entries) = (number(info + 40, 8)?, number(info + 48, 4)?);
        self.copy_map(map, entries, 24, 16)
    }

    /// Linux Documentation/arch/x86/zero-page.rst: `acpi_rsdp_addr`, `cmd_line_ptr`, `cmdline_size`, `e820_table`.
    fn read_linux(&mut self, info: u64) -> Option<()> {
        self.protocol = Protocol::Linux64;
        self.rsdp = Some(number(info + 0x70, 8)?).filter(|address| *address != 0);
        self.copy_command_line(number(info + 0x228, 4)?, number(info + 0x238, 4)? as usize);
        self.copy_map(info + 0x2d0, number(info + 0x1e8, 1)?, 20, 16)
    }

    /// Up to the first zero byte, its bound, or the end of what can be kept.
    fn copy_command_line(&mut self, address: u64, bound: usize) {
        for (i, slot) in self.command_line.iter_mut().enumerate().take(bound) {
            match number(address + i as u64, 1) {
                Some(byte @ 1..) => (*slot, self.command_line_len) = (byte as u8, i + 1),
                _ => break,
            }
        }
    }

    /// Entries are address, size (64 bits each), type (32 bits at `type_offset`).
    fn copy_map(&mut self, map: u64, entries: u64, stride: u64, type_offset: u64) -> Option<()> {
        for i in 0..entries {
            let entry = map + i * stride;
            let range = Ram { start: number(entry, 8)?, len: number(entry + 8, 8)? };
            if number(entry + type_offset, 4)? == TYPE_RAM {
                *self.ranges.get_mut(self.ranges_len)? = range;
                self.ranges_len += 1;
            }
        }
        Some(())
    }

    /// The command line; bytes that are not text become `?`, which no word contains.
    pub fn command_line(&self) -> &str {
        let bytes = self.command_line.get(..self.command_line_len).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or("?")
    }

    /// The RAM of the machine.
    pub fn ram(&self) -> &[Ram] {
        self.ranges.get(..self.ranges_len).unwrap_or_default()
    }

    /// A page below 1 MiB for the start of the other CPUs: the highest there is.
    pub fn low_page(&self) -> Option<u64> {
        let holds = |page: &u64| self.ram().iter().any(|r| r.start <= *page && page + 0x1000 <= r.start + r.len);
        (1..0xa0_u32).rev().map(|page| u64::from(page) << 12).find(holds)
    }

    /// The memory above the image.
    pub fn arena(&self) -> Option<Arena> {
        let image_end = &raw const probe_image_end as u64;
        let range = self.ram().iter().find(|r| r.start < image_end && image_end <= r.start.saturating_add(r.len))?;
        Some(Arena { next: image_end, end: range.start.saturating_add(range.len).min(1 << 32) })
    }
}

/// Memory nobody uses yet.
pub struct Arena {
    next: u64,
    end: u64,
}

impl Arena {
    /// Takes `len` bytes at a multiple of `align` (a power of two); `None` if there is not that much.
    pub fn take(&mut self, len: usize, align: u64) -> Option<NonNull<u8>> {
        let start = self.next.checked_next_multiple_of(align)?;
        let end = start.checked_add(len as u64).filter(|end| *end <= self.end)?;
        self.next = end;
        NonNull::new(start as *mut u8)
    }

    /// Takes room for a slice and fills it.
    pub fn slice<T>(&mut self, len: usize, fill: impl Fn(usize) -> T) -> Option<&'static mut [T]> {
        let start = self.take(len.checked_mul(size_of::<T>())?, align_of::<T>() as u64)?.cast::<T>();
        for i in 0..len {
            // SAFETY: within the memory just taken, aligned for T.
            unsafe { start.add(i).write(fill(i)) };
        }
        // SAFETY: every element is written; the memory is handed out once and never taken back.
        Some(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }
}
