// SPDX-License-Identifier: Apache-2.0
//! FADT: a hardware-reduced machine, how to turn it off and how to reset it (ACPI 6.3 section 5.2.9).
//!
//! The bytes are those of `acpi_tables`. What there is not is said, so that no system probes for it: no 8042, no VGA,
//! no CMOS clock, no fixed power or sleep button, no legacy devices beyond those of the DSDT. Invariant: every register
//! block that a hardware-reduced machine does not have is zero.

use acpi_tables::Aml;
use acpi_tables::fadt::{FADTBuilder, Flags, PmProfile};
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};

use super::platform::Platform;
use super::sdt::{OEM_ID, OEM_REVISION, OEM_TABLE_ID};

/// FADT major version of ACPI 6.3.
pub(crate) const REVISION: u8 = 6;
/// FADT minor version of ACPI 6.3: from here on Linux knows what MADT's online-capable bit means.
pub(crate) const MINOR_REVISION: u8 = 3;
/// Boot architecture flag: VGA must not be probed (table 5-35, bit 2).
pub(crate) const VGA_NOT_PRESENT: u16 = 1 << 2;
/// Boot architecture flag: there is no CMOS clock (table 5-35, bit 5).
pub(crate) const CMOS_RTC_NOT_PRESENT: u16 = 1 << 5;
/// The table, naming the DSDT at `dsdt_gpa`.
pub(crate) fn table(platform: &Platform, dsdt_gpa: u64) -> Vec<u8> {
    // Power and sleep buttons "not fixed hardware", WBINVD works, a reset register, no display, hardware-reduced.
    let mut fadt = FADTBuilder::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION)
        .dsdt_64(dsdt_gpa)
        .preferred_pm_profile(PmProfile::EnterpriseServer)
        .flag(Flags::Wbinvd)
        .flag(Flags::PwrButton)
        .flag(Flags::SlpButton)
        .flag(Flags::ResetRegSup)
        .flag(Flags::Headless)
        .flag(Flags::HwReducedAcpi);
    fadt.major_version = REVISION;
    fadt.fadt_minor_version = MINOR_REVISION;
    fadt.iapc_boot_arch = (VGA_NOT_PRESENT | CMOS_RTC_NOT_PRESENT).into();
    fadt.reset_reg = port(platform.power.reset);
    fadt.reset_value = platform.power.reset_value;
    fadt.sleep_control_reg = port(platform.power.sleep_control);
    fadt.sleep_status_reg = port(platform.power.sleep_status);
    // "Hypervisor vendor identity" of a guest (table 5-33): an id of ours, shown by nobody but the curious.
    fadt.hypervisor_vendor_identity = u64::from_le_bytes(OEM_TABLE_ID).into();
    let mut bytes = Vec::new();
    fadt.finalize().to_aml_bytes(&mut bytes);
    bytes
}

/// A byte-wide I/O port as a generic address (ACPI 6.3 section 5.2.3.2).
fn port(port: u16) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, u64::from(port))
}
