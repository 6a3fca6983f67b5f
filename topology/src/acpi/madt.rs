// SPDX-License-Identifier: Apache-2.0
//! MADT: which CPUs there are, by APIC id, and the interrupt controllers (ACPI 6.3 section 5.2.12).
//!
//! Our own bytes: `acpi_tables` 0.2 has neither x2APIC nor NMI structures and fixes the revision at 1.
//!
//! No interrupt source override is written and PCAT_COMPAT is clear, because a hardware-reduced machine has no 8259:
//! Linux then installs `null_legacy_pic`, `nr_legacy_irqs()` is 0, no ISA interrupt is mapped before it is asked for
//! (`mp_config_acpi_legacy_irqs`), and the serial port's GSI 4 and the event device's GSI 9 go straight to the I/O APIC
//! inputs of those numbers with the trigger and polarity of their `_CRS` (arch/x86/kernel/acpi/boot.c,
//! `acpi_generic_reduced_hw_init`, `acpi_parse_ioapic`; 6.12). An override of GSI 9 would describe the SCI, which there
//! is not. Invariant: entries are in vCPU order, the boot CPU first, and a CPU has exactly one.

use super::platform::Platform;
use super::sdt::{self, Fields};
use crate::apic::XAPIC_MAX_ID;
use crate::id::{ApicId, VcpuIndex};

/// The revision of the table in ACPI 6.3 (table 5-43).
pub(crate) const REVISION: u8 = 5;

/// Local APIC and I/O APIC flag: the processor can be used (table 5-47, bit 0).
pub(crate) const ENABLED: u32 = 1;
/// LINT input of every local APIC that a non-maskable interrupt is wired to, as on every PC.
const NMI_LINT: u8 = 1;

/// The ACPI processor UID of a vCPU: its index. PPTT names CPUs by it.
#[must_use]
pub const fn uid(vcpu: VcpuIndex) -> u32 {
    vcpu.0
}

/// The table for CPUs with these APIC ids, in vCPU order.
pub(crate) fn table(apic_ids: &[ApicId], platform: &Platform) -> Vec<u8> {
    let mut body = Vec::with_capacity(64 + 16 * apic_ids.len());
    body.u32(platform.local_apic_gpa);
    // Flags: PCAT_COMPAT clear, there is no dual 8259 (table 5-44).
    body.u32(0);
    for (index, apic_id) in (0..).zip(apic_ids) {
        cpu(&mut body, uid(VcpuIndex(index)), *apic_id);
    }
    // Type 1, I/O APIC: id, reserved, address, first GSI (table 5-48).
    body.u8(1).u8(12).u8(platform.io_apic.id).reserved(1).u32(platform.io_apic.gpa).u32(0);
    nmis(&mut body, apic_ids);
    sdt::close(*b"APIC", REVISION, &body)
}

fn cpu(body: &mut Vec<u8>, uid: u32, apic_id: ApicId) {
    match (u8::try_from(uid), u8::try_from(apic_id.0)) {
        // Type 0, processor local APIC: UID, APIC id, flags (table 5-46). Id 255 is no CPU's.
        (Ok(uid), Ok(id)) if apic_id.0 <= XAPIC_MAX_ID => body.u8(0).u8(8).u8(uid).u8(id).u32(ENABLED),
        // Type 9, processor local x2APIC: reserved, x2APIC id, flags, UID (table 5-61). Linux ignores one with an id
        // below 255 when there are local APIC entries (acpi_parse_x2apic).
        _ => body.u8(9).u8(16).reserved(2).u32(apic_id.0).u32(ENABLED).u32(uid),
    };
}

/// NMI on LINT1 of all processors: UID 0xFF or 0xFFFF_FFFF, polarity and trigger as the bus has them.
fn nmis(body: &mut Vec<u8>, apic_ids: &[ApicId]) {
    if apic_ids.iter().any(|id| id.0 <= XAPIC_MAX_ID) {
        // Type 4, local APIC NMI: UID, flags, LINT (table 5-54).
        body.u8(4).u8(6).u8(0xFF).u16(0).u8(NMI_LINT);
    }
    if apic_ids.iter().any(|id| id.0 > XAPIC_MAX_ID) {
        // Type 10, local x2APIC NMI: flags, UID, LINT, reserved (table 5-62).
        body.u8(10).u8(12).u16(0).u32(0xFFFF_FFFF).u8(NMI_LINT).reserved(3);
    }
}
