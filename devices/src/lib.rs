// SPDX-License-Identifier: Apache-2.0
//! Device emulation over injected traits.
//!
//! A guest access reaches a [`bus::Bus`], which finds the [`bus::Device`] that claims the address; what a device wants
//! from the outside (an interrupt, an output, somebody to tell that the guest powered off) it gets as a trait.
//! Invariants: nothing here knows KVM, the guest's topology, a file descriptor, a clock or a thread, and no sequence of
//! guest accesses panics, blocks on anything but the injected output, or grows memory without bound.

pub mod acpi_pm;
pub mod bus;
pub mod i8042;
pub mod interrupt;
pub mod pvpanic;
pub mod serial;
pub mod system;
mod unclaimed;

pub use bus::{Bus, BusBuilder, BusError, Device, Width};
pub use interrupt::Interrupt;
pub use system::{ResetSource, SystemEvent, SystemEvents};
