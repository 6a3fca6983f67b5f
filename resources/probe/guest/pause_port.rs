// SPDX-License-Identifier: Apache-2.0
//! The guest's side of the pause port: found by CPUID, written to while spinning. The ABI is docs/pause-port.md.
//!
//! Invariant: nothing is written to a port that the machine has not announced.

use crate::hardware::{cpuid, out32_with_count};

/// Leaves of hypervisors come in blocks of this size.
const BLOCK: u32 = 0x100;
const FIRST: u32 = 0x4000_0000;
const LAST: u32 = 0x4001_0000;
const VERSION: u32 = 1;
/// EDX[0] of the second leaf: the port behind the first takes a count of finished waits in ECX.
const COUNTED: u32 = 1;
const COUNT_PORT_OFFSET: u16 = 4;
/// "Nobody in particular".
pub const UNKNOWN_OWNER: u32 = u32::MAX;

/// A pause port that was announced.
#[derive(Clone, Copy)]
pub struct PausePort {
    /// Its I/O port.
    pub number: u16,
    /// The port to write to: that one, or the one behind it that takes a count too.
    pub written: u16,
    /// How many spins to wait before each write, as the machine recommends; at least 1.
    pub spins: u32,
}

/// Looks for the announcement.
pub fn find() -> Option<PausePort> {
    // CPUID.(EAX=01H):ECX[31]: there is a hypervisor. Without one these leaves repeat another.
    if cpuid(1, 0)[2] >> 31 == 0 {
        return None;
    }
    let signature = [*b"VmmP", *b"ause", *b"Loop"].map(u32::from_le_bytes);
    // Blocks are dense: the first that is not a hypervisor's ends the search.
    let blocks = (FIRST..LAST).step_by(BLOCK as usize).map(|leaf| (leaf, cpuid(leaf, 0)));
    let mut dense = blocks.take_while(|(leaf, values)| (*leaf..leaf + BLOCK).contains(&values[0]));
    let (leaf, [max, ..]) = dense.find(|(_, [_, words @ ..])| *words == signature)?;
    let [version, port, spins, features] = if max > leaf { cpuid(leaf + 1, 0) } else { return None };
    let number = u16::try_from(port).ok()?;
    let written = if features & COUNTED == 0 { number } else { number.checked_add(COUNT_PORT_OFFSET)? };
    (version >= VERSION && number != 0).then_some(PausePort { number, written, spins: spins.max(1) })
}

/// A spinning CPU's use of the port: counts down, writes, counts again.
pub struct Spinner {
    port: Option<u16>,
    spins: u32,
    left: u32,
    /// Waits begun.
    waits: u32,
    /// Writes so far.
    pub writes: u64,
}

impl Spinner {
    /// One that writes after every `spins` spins, or never without a port.
    pub const fn new(port: Option<u16>, spins: u32) -> Self {
        Self { port, spins, left: spins, waits: 0, writes: 0 }
    }

    /// Begins a new wait.
    #[inline(always)]
    pub const fn begin(&mut self) {
        self.left = self.spins;
        self.waits = self.waits.wrapping_add(1);
    }

    /// One spin. True whenever the spins before a write are used up, whether there is a port or not: the moment to look
    /// at rarer conditions. `owner` is the APIC id of the CPU that is waited for.
    #[inline(always)]
    pub fn spin(&mut self, owner: impl FnOnce() -> u32) -> bool {
        core::hint::spin_loop();
        self.left -= 1;
        if self.left != 0 {
            return false;
        }
        self.left = self.spins;
        if let Some(port) = self.port {
            out32_with_count(port, owner(), self.waits);
            self.writes += 1;
        }
        true
    }
}
