// SPDX-License-Identifier: Apache-2.0
//! DSDT: the few devices that cannot be found by looking, in AML (ACPI 6.3 section 5.2.11.1).
//!
//! `\_S5`, the first serial port, pvpanic, a generic event device and the power button that it reports. CPUs are
//! described by the MADT alone: a processor object per CPU would add AML to load and drivers to bind for nothing that
//! the guest lacks. Invariant: every device has an interrupt or a port that the monitor emulates.

use acpi_tables::Aml;
use acpi_tables::aml::{
    And, Device, EISAName, Field, FieldAccessType, FieldEntry, FieldLockRule, FieldUpdateRule, IO, If, Interrupt,
    Local, Method, Name, Notify, OpRegion, OpRegionSpace, Package, Path, ResourceTemplate, Scope, Store, ZERO,
};

use super::platform::{EVENT_POWER_BUTTON, Platform, S5_SLEEP_TYPE};
use super::sdt;

/// The revision that makes AML integers 64 bits wide (ACPI 6.3 section 5.2.11.1).
pub(crate) const REVISION: u8 = 2;
/// Notification of a control-method power button: pressed (ACPI 6.3 section 4.8.2.2.1.2).
const BUTTON_PRESSED: u8 = 0x80;

/// The table.
pub(crate) fn table(platform: &Platform) -> Vec<u8> {
    let mut body = Vec::new();
    // SLP_TYP for the sleep control register, SLP_TYPb unused, two reserved (ACPI 6.3 section 7.4.2).
    let s5 = Package::new(vec![&S5_SLEEP_TYPE, &ZERO, &ZERO, &ZERO]);
    Name::new("_S5_".into(), &s5).to_aml_bytes(&mut body);
    serial(platform, &mut body);
    pvpanic(platform, &mut body);
    events(platform, &mut body);
    sdt::close(*b"DSDT", REVISION, &body)
}

/// The first serial port. `_UID` 0 is the number Linux gives it as ttyS0's.
fn serial(platform: &Platform, body: &mut Vec<u8>) {
    let ports = IO::new(platform.serial.port, platform.serial.port, 1, 8);
    let interrupt = line(platform.serial.gsi);
    let id = Name::new("_HID".into(), &EISAName::new("PNP0501"));
    let uid = Name::new("_UID".into(), &ZERO);
    let resources = Name::new("_CRS".into(), &ResourceTemplate::new(vec![&ports, &interrupt]));
    let com1 = Device::new("COM1".into(), vec![&id, &uid, &resources]);
    Scope::new("_SB_".into(), vec![&com1]).to_aml_bytes(body);
}

/// The panic device, under the name that Linux' pvpanic driver binds to (QEMU docs/specs/pvpanic.rst).
fn pvpanic(platform: &Platform, body: &mut Vec<u8>) {
    let port = IO::new(platform.pvpanic_port, platform.pvpanic_port, 1, 1);
    let id = Name::new("_HID".into(), &"QEMU0001");
    let resources = Name::new("_CRS".into(), &ResourceTemplate::new(vec![&port]));
    let device = Device::new("PEVT".into(), vec![&id, &resources]);
    Scope::new("_SB_".into(), vec![&device]).to_aml_bytes(body);
}

/// The power button and the device whose interrupt tells of it (ACPI 6.3 sections 4.8.2.2.1.2, 5.6.9).
fn events(platform: &Platform, body: &mut Vec<u8>) {
    let button_id = Name::new("_HID".into(), &EISAName::new("PNP0C0C"));
    let button = Device::new("PWRB".into(), vec![&button_id]);

    let id = Name::new("_HID".into(), &"ACPI0013");
    let interrupt = line(platform.event_device.gsi);
    let resources = Name::new("_CRS".into(), &ResourceTemplate::new(vec![&interrupt]));
    let region = OpRegion::new("EREG".into(), OpRegionSpace::SystemIO, &platform.event_device.port, &1u8);
    let register = Field::new(
        "EREG".into(),
        FieldAccessType::Byte,
        FieldLockRule::NoLock,
        FieldUpdateRule::Preserve,
        vec![FieldEntry::Named(*b"ESTS", 8)],
    );

    // One read, because a read takes the pending events; then one notification for each bit that was set.
    let pending = Local(0);
    let register_name = Path::new("ESTS");
    let read = Store::new(&pending, &register_name);
    let pressed = And::new(&ZERO, &pending, &EVENT_POWER_BUTTON);
    let button_path = Path::new("PWRB");
    let notify = Notify::new(&button_path, &BUTTON_PRESSED);
    let on_press = If::new(&pressed, vec![&notify]);
    let method = Method::new("_EVT".into(), 1, true, vec![&read, &on_press]);
    let device = Device::new("GED_".into(), vec![&id, &resources, &region, &register, &method]);
    Scope::new("_SB_".into(), vec![&button, &device]).to_aml_bytes(body);
}

/// An edge-triggered, active-high, exclusive interrupt of a device.
fn line(gsi: u32) -> Interrupt {
    Interrupt::new(true, true, false, false, gsi)
}
