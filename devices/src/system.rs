// SPDX-License-Identifier: Apache-2.0
//! What a guest asks of the whole machine by writing to a device: power-off, reset, a report of its panic.
//!
//! The power devices translate register writes to a [`SystemEvent`] and hand it to the injected [`SystemEvents`]; the
//! monitor decides what follows and with which exit status. Invariant: no device ends the process or blocks the vCPU.

use std::sync::Arc;

/// Which register a guest used to reset the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetSource {
    /// Command 0xFE of the keyboard controller ([`crate::i8042`]).
    KeyboardController,
    /// The reset register the FADT names ([`crate::acpi_pm`]).
    AcpiResetRegister,
}

/// A request or report that concerns the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemEvent {
    /// The guest entered the soft-off state S5.
    PowerOff,
    /// The guest reset the machine.
    Reset(ResetSource),
    /// The guest's kernel panicked and wants the host to act.
    Panic,
    /// The guest's kernel panicked and handles it itself (a crash kernel is loaded): to be recorded, nothing more.
    CrashLoaded,
    /// The guest asked for a sleep state that the machine does not have; it runs on.
    UnsupportedSleep {
        /// The value of SLP_TYP, 0 to 7.
        sleep_type: u8,
    },
}

/// Who is told. Called on the thread of the vCPU that made the access, so an implementation only takes note.
pub trait SystemEvents: Send + Sync {
    /// Takes note of `event`. A guest may repeat an event any number of times.
    fn system_event(&self, event: SystemEvent);
}

impl<T: SystemEvents + ?Sized> SystemEvents for Arc<T> {
    fn system_event(&self, event: SystemEvent) {
        (**self).system_event(event);
    }
}

/// Keeps the events of a test, in order.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Journal(std::sync::Mutex<Vec<SystemEvent>>);

#[cfg(test)]
impl Journal {
    pub(crate) fn events(&self) -> Vec<SystemEvent> {
        self.0.lock().unwrap().clone()
    }
}

#[cfg(test)]
impl SystemEvents for Journal {
    fn system_event(&self, event: SystemEvent) {
        self.0.lock().unwrap().push(event);
    }
}
