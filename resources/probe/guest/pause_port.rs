// SPDX-License-Identifier: Apache-2.0
//! The guest's side of the pause port: found by CPUID, written to while spinning. The ABI is docs/pause-port.md.
//!
//! Invariant: nothing is written to a port that the machine has not announced.

use crate::hardware::{cpuid, out32_answered, out32_with_count};

/// Leaves of hypervisors come in blocks of this size.
const BLOCK: u32 = 0x100;
const FIRST: u32 = 0x4000_0000;
const LAST: u32 = 0x4001_0000;
const VERSION: u32 = 1;
/// EDX[0] of the second leaf: the port behind the first takes a count of finished waits in ECX.
const COUNTED: u32 = 1;
const COUNT_PORT_OFFSET: u16 = 4;
/// EDX[1]: the port behind that one also answers with the spins before the next write, in ECX.
const ANSWERED: u32 = 2;
const ANSWER_PORT_OFFSET: u16 = 8;
/// "Nobody in particular".
pub const UNKNOWN_OWNER: u32 = u32::MAX;

/// A pause port that was announced.
#[derive(Clone, Copy)]
pub struct PausePort {
    /// Its I/O port.
    pub number: u16,
    /// The port to write to: that one, or the one behind it that takes a count too.
    pub counting: u16,
    /// The port that also answers, if there is one.
    pub answering: Option<u16>,
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
    let counting = if features & COUNTED == 0 { number } else { number.checked_add(COUNT_PORT_OFFSET)? };
    let answering = if features & ANSWERED == 0 { None } else { number.checked_add(ANSWER_PORT_OFFSET) };
    (version >= VERSION && number != 0).then_some(PausePort { number, counting, answering, spins: spins.max(1) })
}

/// Which port a spinning CPU writes to.
#[derive(Clone, Copy)]
pub enum Written {
    /// One that only takes what is written.
    Told(u16),
    /// One that answers with the spins before the next write.
    Answers(u16),
}

impl PausePort {
    /// The port to write to; `fixed` says that the number of spins is not the machine's to change.
    pub fn written(&self, fixed: bool) -> Written {
        match self.answering {
            Some(port) if !fixed => Written::Answers(port),
            _ => Written::Told(self.counting),
        }
    }
}

/// A spinning CPU's use of the port: counts down, writes, counts again.
pub struct Spinner {
    port: Option<Written>,
    spins: u32,
    left: u32,
    /// Waits begun.
    waits: u32,
    /// Writes so far.
    pub writes: u64,
}

impl Spinner {
    /// One that writes after every `spins` spins until it is answered otherwise, or never without a port.
    pub const fn new(port: Option<Written>, spins: u32) -> Self {
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
        match self.port {
            Some(Written::Told(port)) => out32_with_count(port, owner(), self.waits),
            Some(Written::Answers(port)) => self.spins = out32_answered(port, owner(), self.waits).max(1),
            None => {}
        }
        self.writes += u64::from(self.port.is_some());
        self.left = self.spins;
        true
    }
}
