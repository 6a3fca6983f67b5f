// SPDX-License-Identifier: Apache-2.0
//! Keyboard controller of which only the reset line is there.
//!
//! Linux and many others reset a machine by telling the 8042 to pulse its output bit 0. The controller is not announced
//! (FADT IAPC_BOOT_ARCH bit 1 clear, ACPI 6.5 section 5.2.9.3), so nobody looks for a keyboard. Invariant: the status
//! register always reads 0, input buffer empty, so a guest that waits for the controller never waits.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use vm_superio::{I8042Device, Trigger};

use crate::bus::ByteRegisters;
use crate::system::{ResetSource, SystemEvent, SystemEvents};

/// Register number of the data port, 0x60 on a PC.
pub const DATA: u64 = 0;
/// Register number of the status (read) and command (write) port, 0x64 on a PC.
pub const STATUS_COMMAND: u64 = 4;

struct ResetLine<E>(E);

impl<E: SystemEvents> Trigger for ResetLine<E> {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        self.0.system_event(SystemEvent::Reset(ResetSource::KeyboardController));
        Ok(())
    }
}

/// The controller. Claim [`DATA`] and [`STATUS_COMMAND`] as one-register windows: the ports between belong to others.
pub struct I8042<E: SystemEvents> {
    controller: Mutex<I8042Device<ResetLine<E>>>,
}

impl<E: SystemEvents> I8042<E> {
    /// A controller that tells `events` when the guest pulses the reset line (command 0xFE).
    pub fn new(events: E) -> Self {
        Self { controller: Mutex::new(I8042Device::new(ResetLine(events))) }
    }
}

impl<E: SystemEvents> ByteRegisters for I8042<E> {
    fn read_register(&self, offset: u64) -> u8 {
        let offset = u8::try_from(offset).unwrap_or(u8::MAX);
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).read(offset)
    }

    fn write_register(&self, offset: u64, value: u8) {
        let offset = u8::try_from(offset).unwrap_or(u8::MAX);
        let Ok(()) = self.controller.lock().unwrap_or_else(PoisonError::into_inner).write(offset, value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::system::Journal;

    #[test]
    fn only_the_reset_command_resets() {
        let journal = Arc::new(Journal::default());
        let controller = I8042::new(journal.clone());
        for command in 0..=u8::MAX {
            controller.write_register(DATA, command);
            if command != 0xFE {
                controller.write_register(STATUS_COMMAND, command);
            }
        }
        assert_eq!(journal.events(), []);
        controller.write_register(STATUS_COMMAND, 0xFE);
        assert_eq!(journal.events(), [SystemEvent::Reset(ResetSource::KeyboardController)]);
    }

    #[test]
    fn the_status_says_input_buffer_empty() {
        let controller = I8042::new(Arc::new(Journal::default()));
        assert_eq!(controller.read_register(STATUS_COMMAND), 0);
    }
}
