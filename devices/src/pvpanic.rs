// SPDX-License-Identifier: Apache-2.0
//! Panic notifier: the port a guest kernel writes when it panics (QEMU, docs/specs/pvpanic, ISA interface).
//!
//! Announced to the guest as ACPI device `QEMU0001` at port 0x505. Invariant: bits the device does not recognise are
//! ignored, as the specification asks.

use crate::bus::ByteRegisters;
use crate::system::{SystemEvent, SystemEvents};

/// Bit 0, PVPANIC_PANICKED: the guest panicked and the host should act.
pub const PANICKED: u8 = 1 << 0;
/// Bit 1, PVPANIC_CRASH_LOADED: the guest panicked, handles it itself, and wants it recorded.
pub const CRASH_LOADED: u8 = 1 << 1;

/// The device: one register.
pub struct PvPanic<E: SystemEvents> {
    events: E,
}

impl<E: SystemEvents> PvPanic<E> {
    /// A notifier that reports to `events`.
    pub fn new(events: E) -> Self {
        Self { events }
    }
}

impl<E: SystemEvents> ByteRegisters for PvPanic<E> {
    fn read_register(&self, _offset: u64) -> u8 {
        PANICKED | CRASH_LOADED
    }

    fn write_register(&self, _offset: u64, value: u8) {
        // A guest that handles its panic itself sets only the second bit; with both set, the first asks for more.
        if value & PANICKED != 0 {
            self.events.system_event(SystemEvent::Panic);
        } else if value & CRASH_LOADED != 0 {
            self.events.system_event(SystemEvent::CrashLoaded);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::system::Journal;

    #[test]
    fn reads_give_the_recognised_bits() {
        assert_eq!(PvPanic::new(Arc::new(Journal::default())).read_register(0), 0b11);
    }

    #[test]
    fn each_write_is_one_event_and_unknown_bits_are_none() {
        let journal = Arc::new(Journal::default());
        let device = PvPanic::new(journal.clone());
        for value in [0, 0b100, 0b1, 0b10, 0b11, 0b1111_1100] {
            device.write_register(0, value);
        }
        assert_eq!(journal.events(), [SystemEvent::Panic, SystemEvent::CrashLoaded, SystemEvent::Panic]);
    }
}
