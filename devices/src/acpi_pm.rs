// SPDX-License-Identifier: Apache-2.0
//! Power registers of a hardware-reduced ACPI machine, and its power button.
//!
//! Four 8-bit registers: sleep control and sleep status (ACPI 6.5, section 4.8.3.7), the reset register (4.8.3.6), and
//! the event register behind the Generic Event Device that carries the power button (5.6.9, 4.8.2.2.1.2 for the button
//! itself, a control method button). The FADT and DSDT tell the guest where they are. Invariants: only SLP_EN with the
//! SLP_TYP of S5 powers off, only the announced value resets, and a press of the button is seen exactly once.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::bus::ByteRegisters;
use crate::interrupt::Interrupt;
use crate::system::{ResetSource, SystemEvent, SystemEvents};

/// Number of the sleep control register (FADT SLEEP_CONTROL_REG).
pub const SLEEP_CONTROL: u64 = 0;
/// Number of the sleep status register (FADT SLEEP_STATUS_REG).
pub const SLEEP_STATUS: u64 = 1;
/// Number of the reset register (FADT RESET_REG).
pub const RESET: u64 = 2;
/// Number of the event register: reading it returns the pending events and clears them.
pub const EVENT: u64 = 3;
/// How many registers there are.
pub const REGISTERS: u64 = 4;

/// What the reset register wants written (FADT RESET_VALUE).
pub const RESET_VALUE: u8 = 1;
/// Event register bit 0: the power button was pressed.
pub const EVENT_POWER_BUTTON: u8 = 1 << 0;
/// SLP_TYP of the soft-off state S5, as the DSDT's `_S5` package names it.
pub const S5_SLEEP_TYPE: u8 = 5;

/// Sleep control register bits 4:2, SLP_TYPx.
const SLP_TYP_SHIFT: u8 = 2;
const SLP_TYP_MASK: u8 = 0b111 << SLP_TYP_SHIFT;
/// Sleep control register bit 5, SLP_EN: write-only, enters the state SLP_TYPx names.
const SLP_EN: u8 = 1 << 5;

/// The registers and the button.
pub struct AcpiPm<E: SystemEvents, I: Interrupt> {
    events: E,
    line: I,
    /// SLP_TYPx as last written; every other bit of the register reads 0.
    sleep_type: AtomicU8,
    /// Pending bits of the event register.
    pending: AtomicU8,
    interrupts_failed: AtomicU64,
}

impl<E: SystemEvents, I: Interrupt> AcpiPm<E, I> {
    /// Registers that report to `events`, with a power button on the interrupt `line` of the Generic Event Device.
    pub fn new(events: E, line: I) -> Self {
        Self {
            events,
            line,
            sleep_type: AtomicU8::new(0),
            pending: AtomicU8::new(0),
            interrupts_failed: AtomicU64::new(0),
        }
    }

    /// Presses the power button: the guest's ACPI driver reads the event and shuts down by itself, or does not.
    ///
    /// Raises the interrupt on every press, so that a guest that had it masked at first hears of the next one.
    pub fn press_power_button(&self) {
        // Release before the edge, acquire in the read: the handler that the edge starts finds the bit.
        self.pending.fetch_or(EVENT_POWER_BUTTON, Ordering::Release);
        if self.line.raise().is_err() {
            self.interrupts_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a press has not been read by the guest yet.
    #[must_use]
    pub fn power_button_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) & EVENT_POWER_BUTTON != 0
    }

    /// How often the interrupt could not be raised.
    #[must_use]
    pub fn interrupts_failed(&self) -> u64 {
        self.interrupts_failed.load(Ordering::Relaxed)
    }

    fn write_sleep_control(&self, value: u8) {
        let sleep_type = (value & SLP_TYP_MASK) >> SLP_TYP_SHIFT;
        self.sleep_type.store(sleep_type, Ordering::Relaxed);
        if value & SLP_EN != 0 {
            self.events.system_event(match sleep_type {
                S5_SLEEP_TYPE => SystemEvent::PowerOff,
                sleep_type => SystemEvent::UnsupportedSleep { sleep_type },
            });
        }
    }
}

impl<E: SystemEvents, I: Interrupt> ByteRegisters for AcpiPm<E, I> {
    fn read_register(&self, offset: u64) -> u8 {
        match offset {
            SLEEP_CONTROL => self.sleep_type.load(Ordering::Relaxed) << SLP_TYP_SHIFT,
            EVENT => self.pending.swap(0, Ordering::Acquire),
            // Sleep status: WAK_STS (bit 7) is never set, for the machine never wakes from a sleep it has not.
            _ => 0,
        }
    }

    fn write_register(&self, offset: u64, value: u8) {
        match offset {
            SLEEP_CONTROL => self.write_sleep_control(value),
            RESET if value == RESET_VALUE => {
                self.events.system_event(SystemEvent::Reset(ResetSource::AcpiResetRegister));
            }
            // Sleep status: WAK_STS is cleared by writing 1, and is clear. The event register is read-only.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::interrupt::Edges;
    use crate::system::Journal;

    type Registers = AcpiPm<Arc<Journal>, Arc<Edges>>;

    fn registers() -> (Registers, Arc<Journal>, Arc<Edges>) {
        let (journal, edges) = (Arc::new(Journal::default()), Arc::new(Edges::default()));
        (AcpiPm::new(journal.clone(), edges.clone()), journal, edges)
    }

    #[test]
    fn only_s5_with_slp_en_powers_off() {
        for value in 0..=u8::MAX {
            let (pm, journal, _) = registers();
            pm.write_register(SLEEP_CONTROL, value);
            let sleep_type = value >> 2 & 0b111;
            let expected = match (value & 0x20 != 0, sleep_type) {
                (false, _) => vec![],
                (true, 5) => vec![SystemEvent::PowerOff],
                (true, sleep_type) => vec![SystemEvent::UnsupportedSleep { sleep_type }],
            };
            assert_eq!(journal.events(), expected, "{value:#x}");
            assert_eq!(pm.read_register(SLEEP_CONTROL), sleep_type << 2, "SLP_EN reads 0");
        }
    }

    #[test]
    fn only_the_announced_value_resets() {
        let (pm, journal, _) = registers();
        for value in (0..=u8::MAX).filter(|value| *value != RESET_VALUE) {
            pm.write_register(RESET, value);
        }
        assert_eq!(journal.events(), []);
        pm.write_register(RESET, RESET_VALUE);
        assert_eq!(journal.events(), [SystemEvent::Reset(ResetSource::AcpiResetRegister)]);
    }

    #[test]
    fn a_press_is_read_exactly_once() {
        let (pm, journal, edges) = registers();
        pm.press_power_button();
        assert_eq!(edges.count(), 1);
        assert!(pm.power_button_pending());
        assert_eq!(pm.read_register(EVENT), EVENT_POWER_BUTTON);
        assert_eq!(pm.read_register(EVENT), 0);
        assert!(!pm.power_button_pending());
        assert_eq!(journal.events(), []);
    }

    #[test]
    fn a_press_survives_an_interrupt_that_fails() {
        let (pm, _, edges) = registers();
        edges.fail();
        pm.press_power_button();
        assert_eq!(pm.interrupts_failed(), 1);
        assert_eq!(pm.read_register(EVENT), EVENT_POWER_BUTTON);
    }

    #[test]
    fn sleep_status_never_reports_a_wake() {
        let (pm, _, _) = registers();
        pm.write_register(SLEEP_STATUS, 0x80);
        assert_eq!(pm.read_register(SLEEP_STATUS), 0);
    }
}
