// SPDX-License-Identifier: Apache-2.0
//! Whether Linux can turn the machine off and reset it.
//!
//! drivers/acpi/sleep.c `acpi_sleep_state_supported` wants both sleep registers of a hardware-reduced machine,
//! drivers/acpi/reboot.c `acpi_reboot` the reset register.

use super::Finding;
use crate::acpi::decode::Decoded;

pub(super) fn check(acpi: &Decoded, findings: &mut Vec<Finding>) {
    let fadt = &acpi.fadt;
    if !fadt.hardware_reduced {
        findings.push(Finding::NotHardwareReduced);
    }
    if fadt.sleep_control.byte_port().is_none() || fadt.sleep_status.byte_port().is_none() {
        findings.push(Finding::NoSleepRegisters);
    }
    if fadt.reset.is_none_or(|(register, _)| register.byte_port().is_none()) {
        findings.push(Finding::NoResetRegister);
    }
}
