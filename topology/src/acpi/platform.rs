// SPDX-License-Identifier: Apache-2.0
//! What the tables must know of the machine that is not topology: addresses, ports and interrupt numbers.
//!
//! The monitor's layout owns these numbers and hands them in; the tables pass them on to the guest. The values that a
//! guest writes to a register are decided here, because the AML and the device must agree on them.

/// The value of SLP_TYP that means S5 to this machine: what `\_S5` says, what the sleep control register then gets.
///
/// Any number that fits the three bits would do; 5 reads well in a trace.
pub const S5_SLEEP_TYPE: u8 = 5;

/// Bit of the event register that says: the power button was pressed.
pub const EVENT_POWER_BUTTON: u8 = 1 << 0;

/// A device with one I/O port range and one interrupt line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortDevice {
    /// First I/O port.
    pub port: u16,
    /// Global system interrupt, an input of the I/O APIC; edge-triggered, active high.
    pub gsi: u32,
}

/// The I/O APIC, whose interrupt inputs are the global system interrupts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApic {
    /// Its APIC id, in a space of its own beside the CPUs' (Intel I/O APIC, IOAPICID).
    pub id: u8,
    /// Guest-physical address of its registers.
    pub gpa: u32,
}

/// Byte-wide I/O ports by which the guest changes the power state (ACPI 6.3 section 4.8.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerPorts {
    /// Sleep control register: SLP_EN and SLP_TYP.
    pub sleep_control: u16,
    /// Sleep status register: WAK_STS.
    pub sleep_status: u16,
    /// Reset register.
    pub reset: u16,
    /// The value whose write resets the machine.
    pub reset_value: u8,
}

/// Everything of the machine that the tables name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Guest-physical address of the RSDP: a multiple of 16, below 1 MiB to be found by a scan (ACPI 6.3 section
    /// 5.2.5.1).
    pub rsdp_gpa: u64,
    /// Guest-physical address of the first table.
    pub tables_gpa: u64,
    /// Bytes reserved there.
    pub tables_len_bytes: u64,
    /// The I/O APIC.
    pub io_apic: IoApic,
    /// Guest-physical address of every CPU's local APIC.
    pub local_apic_gpa: u32,
    /// The first serial port: eight ports from this one, 16550.
    pub serial: PortDevice,
    /// Sleep and reset registers.
    pub power: PowerPorts,
    /// The generic event device: a read of its one byte says which events are pending, as `EVENT_` bits, and clears
    /// them.
    pub event_device: PortDevice,
    /// The pvpanic device's one port.
    pub pvpanic_port: u16,
}
