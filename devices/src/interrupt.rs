// SPDX-License-Identifier: Apache-2.0
//! How a device asks for its interrupt, without knowing who delivers it.
//!
//! A device holds one [`Interrupt`] per line and raises it when a condition becomes pending; the monitor implements
//! the trait with an event file descriptor the kernel listens to. Invariant: raising never blocks.

use std::io;
use std::sync::Arc;

/// One edge-triggered interrupt line of a device.
///
/// Edge-triggered is what ISA lines are (ACPI 6.5, section 5.2.12.5, Interrupt Source Override: what conforms to the bus),
/// so there is nothing to lower again.
pub trait Interrupt: Send + Sync {
    /// Makes one rising edge on the line.
    ///
    /// # Errors
    /// What the mechanism behind the line reports. A device counts the failure and goes on: its condition stays pending
    /// in its registers, where a driver that polls still finds it.
    fn raise(&self) -> io::Result<()>;
}

impl<T: Interrupt + ?Sized> Interrupt for Arc<T> {
    fn raise(&self) -> io::Result<()> {
        (**self).raise()
    }
}

impl<T: Interrupt + ?Sized> Interrupt for Box<T> {
    fn raise(&self) -> io::Result<()> {
        (**self).raise()
    }
}

/// Counts the edges of a test, and fails when told to.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Edges {
    count: std::sync::atomic::AtomicU64,
    failing: std::sync::atomic::AtomicBool,
}

#[cfg(test)]
impl Edges {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn fail(&self) {
        self.failing.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Interrupt for Edges {
    fn raise(&self) -> io::Result<()> {
        if self.failing.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}
