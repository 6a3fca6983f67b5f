// SPDX-License-Identifier: Apache-2.0
//! Decides which device answers a port or memory access of the guest.
//!
//! A vCPU thread hands every I/O exit to the [`Bus`] of its address space (one for ports, one for memory), which finds
//! the [`Device`] that claims the address and passes the access on. It is built once, then shared without a lock.
//! Invariants: claims do not overlap; a read that nobody claims floats high; no access, whatever its address, width or
//! length, is fatal or lost: it reaches a device or is counted.

use std::sync::Arc;

use thiserror::Error;

use crate::unclaimed::{Direction, UnclaimedTable};

pub use crate::unclaimed::UnclaimedCount;

/// What an undriven data line reads as: the pull-up resistors of the bus.
const FLOATING: u8 = 0xFF;

/// Size of one element of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// `in al` / `out al`, `insb` / `outsb`.
    Byte,
    /// `in ax` / `out ax`, `insw` / `outsw`.
    Word,
    /// `in eax` / `out eax`, `insd` / `outsd`.
    Dword,
    /// Memory-mapped accesses only.
    Qword,
}

impl Width {
    /// The width of `bytes` bytes; none if the architecture has no such access.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::Byte),
            2 => Some(Self::Word),
            4 => Some(Self::Dword),
            8 => Some(Self::Qword),
            _ => None,
        }
    }

    /// The width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Dword => 4,
            Self::Qword => 8,
        }
    }
}

/// A device on a bus. Offsets are relative to the register window the device was claimed with.
///
/// Called from several vCPU threads at once: a device locks its own state, and only that.
pub trait Device: Send + Sync {
    /// Fills `data`, 1 to 8 bytes, with what the registers from `offset` on hold (little-endian).
    fn read(&self, offset: u64, data: &mut [u8]);

    /// Stores `data`, 1 to 8 bytes, to the registers from `offset` on (little-endian).
    fn write(&self, offset: u64, data: &[u8]);

    /// `rep ins`: every element of `data` is read from the same `offset`, in order.
    fn read_string(&self, offset: u64, width: Width, data: &mut [u8]) {
        for element in data.chunks_mut(width.bytes()) {
            self.read(offset, element);
        }
    }

    /// `rep outs`: every element of `data` is written to the same `offset`, in order.
    fn write_string(&self, offset: u64, width: Width, data: &[u8]) {
        for element in data.chunks(width.bytes()) {
            self.write(offset, element);
        }
    }
}

/// A device of 8-bit registers, as ISA devices are: a wider access is one byte access per register, ascending.
pub trait ByteRegisters: Send + Sync {
    /// Value of the register at `offset`.
    fn read_register(&self, offset: u64) -> u8;

    /// Stores `value` to the register at `offset`.
    fn write_register(&self, offset: u64, value: u8);

    /// `rep outsb`: stores every byte of `values` to the register at `offset`, in order.
    fn write_register_string(&self, offset: u64, values: &[u8]) {
        for value in values {
            self.write_register(offset, *value);
        }
    }
}

impl<T: ByteRegisters> Device for T {
    fn read(&self, offset: u64, data: &mut [u8]) {
        for (register, byte) in ascending(offset).zip(data) {
            *byte = self.read_register(register);
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        for (register, byte) in ascending(offset).zip(data) {
            self.write_register(register, *byte);
        }
    }

    fn write_string(&self, offset: u64, width: Width, data: &[u8]) {
        if width == Width::Byte {
            self.write_register_string(offset, data);
        } else {
            for element in data.chunks(width.bytes()) {
                self.write(offset, element);
            }
        }
    }
}

/// The addresses from `first` on. They wrap, because a guest may well access the last one with a wide element.
fn ascending(first: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |distance| first.wrapping_add(distance))
}

/// Why a claim cannot be part of a bus.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BusError {
    /// Two devices want the same address.
    #[error(
        "{second} claims {second_first:#x} to {second_last:#x}, which {first} already has ({first_first:#x} to \
         {first_last:#x}): give one of them another address"
    )]
    Overlap {
        /// The device that was there.
        first: &'static str,
        /// Its first address.
        first_first: u64,
        /// Its last address.
        first_last: u64,
        /// The device that came later.
        second: &'static str,
        /// Its first address.
        second_first: u64,
        /// Its last address.
        second_last: u64,
    },
    /// A claim of no address.
    #[error("{name} claims 0 addresses at {first:#x}: give it at least one")]
    Empty {
        /// The device.
        name: &'static str,
        /// Its first address.
        first: u64,
    },
    /// A claim that runs past the last address there is.
    #[error("{name} claims {len:#x} addresses from {first:#x}, past the end of the address space: place it lower")]
    PastEnd {
        /// The device.
        name: &'static str,
        /// Its first address.
        first: u64,
        /// Number of addresses.
        len: u64,
    },
}

/// A window of addresses and the device behind it.
struct Claim {
    name: &'static str,
    first: u64,
    last: u64,
    /// Register offset of the first address.
    register: u64,
    device: Arc<dyn Device>,
}

impl Claim {
    fn new(name: &'static str, first: u64, len: u64, register: u64, device: Arc<dyn Device>) -> Result<Self, BusError> {
        let span = len.checked_sub(1).ok_or(BusError::Empty { name, first })?;
        let past_end = BusError::PastEnd { name, first, len };
        let last = first.checked_add(span).filter(|_| register.checked_add(span).is_some()).ok_or(past_end)?;
        Ok(Self { name, first, last, register, device })
    }

    fn offset_of(&self, address: u64) -> u64 {
        self.register + (address - self.first)
    }

    fn overlap(&self, second: &Self) -> BusError {
        BusError::Overlap {
            first: self.name,
            first_first: self.first,
            first_last: self.last,
            second: second.name,
            second_first: second.first,
            second_last: second.last,
        }
    }
}

/// Collects claims; [`BusBuilder::build`] makes the immutable bus of them.
#[derive(Default)]
pub struct BusBuilder {
    /// Ascending by address.
    claims: Vec<Claim>,
}

impl BusBuilder {
    /// A bus without devices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the `len` addresses from `first` on to `device`; its registers start at `first`.
    ///
    /// # Errors
    /// [`BusError`] when the window is empty, too long, or taken.
    pub fn claim(self, name: &'static str, first: u64, len: u64, device: Arc<dyn Device>) -> Result<Self, BusError> {
        self.claim_window(name, first, len, 0, device)
    }

    /// As [`BusBuilder::claim`], for one of several windows of a device: `first` is its register number `register`.
    ///
    /// # Errors
    /// [`BusError`] when the window is empty, too long, or taken.
    pub fn claim_window(
        mut self,
        name: &'static str,
        first: u64,
        len: u64,
        register: u64,
        device: Arc<dyn Device>,
    ) -> Result<Self, BusError> {
        let claim = Claim::new(name, first, len, register, device)?;
        let at = self.claims.partition_point(|other| other.first < claim.first);
        let neighbours = self.claims[..at].last().into_iter().chain(self.claims.get(at));
        for other in neighbours {
            if other.first <= claim.last && claim.first <= other.last {
                return Err(other.overlap(&claim));
            }
        }
        self.claims.insert(at, claim);
        Ok(self)
    }

    /// The finished bus.
    #[must_use]
    pub fn build(self) -> Bus {
        Bus { claims: self.claims.into(), unclaimed: UnclaimedTable::new() }
    }
}

/// An address space with its devices. Looking a device up takes no lock.
pub struct Bus {
    /// Ascending by address, disjoint.
    claims: Box<[Claim]>,
    unclaimed: UnclaimedTable,
}

impl Bus {
    /// Answers a read of `data.len() / width` elements from `address` (more than one: `rep ins`).
    pub fn read(&self, address: u64, width: Width, data: &mut [u8]) {
        match self.route(address, width) {
            Route::Device(claim) => {
                let offset = claim.offset_of(address);
                if data.len() <= width.bytes() {
                    claim.device.read(offset, data);
                } else {
                    claim.device.read_string(offset, width, data);
                }
            }
            Route::Nobody => {
                self.note(address, Direction::Read, width, data.len());
                data.fill(FLOATING);
            }
            Route::Straddles => {
                for element in data.chunks_mut(width.bytes()) {
                    self.read_bytes(address, element);
                }
            }
        }
    }

    /// Passes on a write of `data.len() / width` elements to `address` (more than one: `rep outs`).
    pub fn write(&self, address: u64, width: Width, data: &[u8]) {
        match self.route(address, width) {
            Route::Device(claim) => {
                let offset = claim.offset_of(address);
                if data.len() <= width.bytes() {
                    claim.device.write(offset, data);
                } else {
                    claim.device.write_string(offset, width, data);
                }
            }
            Route::Nobody => self.note(address, Direction::Write, width, data.len()),
            Route::Straddles => {
                for element in data.chunks(width.bytes()) {
                    self.write_bytes(address, element);
                }
            }
        }
    }

    /// The accesses that no device claimed, per address, ascending; the last entry may be for "elsewhere".
    #[must_use]
    pub fn unclaimed(&self) -> Vec<UnclaimedCount> {
        self.unclaimed.counts()
    }

    /// Where an element of `width` at `address` goes.
    fn route(&self, address: u64, width: Width) -> Route<'_> {
        let last = address.saturating_add(width.bytes() as u64 - 1);
        // The only claim that can touch the element and start at or below its end.
        match self.at_or_below(last) {
            Some(claim) if claim.first <= address && last <= claim.last => Route::Device(claim),
            Some(claim) if claim.last >= address => Route::Straddles,
            _ => Route::Nobody,
        }
    }

    fn at_or_below(&self, address: u64) -> Option<&Claim> {
        let above = self.claims.partition_point(|claim| claim.first <= address);
        self.claims[..above].last()
    }

    /// One element that no device claims as a whole: the bus splits it into byte cycles, as ISA does.
    fn read_bytes(&self, address: u64, element: &mut [u8]) {
        for (address, byte) in ascending(address).zip(element) {
            match self.route(address, Width::Byte) {
                Route::Device(claim) => claim.device.read(claim.offset_of(address), std::slice::from_mut(byte)),
                Route::Nobody | Route::Straddles => {
                    self.note(address, Direction::Read, Width::Byte, 1);
                    *byte = FLOATING;
                }
            }
        }
    }

    fn write_bytes(&self, address: u64, element: &[u8]) {
        for (address, byte) in ascending(address).zip(element) {
            match self.route(address, Width::Byte) {
                Route::Device(claim) => claim.device.write(claim.offset_of(address), std::slice::from_ref(byte)),
                Route::Nobody | Route::Straddles => self.note(address, Direction::Write, Width::Byte, 1),
            }
        }
    }

    fn note(&self, address: u64, direction: Direction, width: Width, len_bytes: usize) {
        self.unclaimed.note(address, direction, len_bytes.div_ceil(width.bytes()) as u64);
    }
}

enum Route<'a> {
    /// One device has all of the element.
    Device(&'a Claim),
    /// No device has any of it.
    Nobody,
    /// Some bytes belong to a device, others to another or to nobody.
    Straddles,
}

#[cfg(test)]
mod tests;
