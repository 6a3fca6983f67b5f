// SPDX-License-Identifier: Apache-2.0
//! SRAT: the proximity domain of every CPU and of every byte of memory (ACPI 6.3 section 5.2.16).
//!
//! Our own bytes: `acpi_tables` 0.2 has no CPU affinity structure and fixes the revision at 1, with which Linux reads
//! only the low byte of a memory range's domain. Invariant: a CPU appears once, in the form (xAPIC or x2APIC) in which
//! the MADT names it, and every RAM range once.

use super::madt::ENABLED;
use super::sdt::{self, Fields};
use crate::apic::XAPIC_MAX_ID;
use crate::id::{ApicId, NodeId};
use crate::memory_map::RamRange;

/// The revision of the table since ACPI 4.0: 32-bit proximity domains.
pub(crate) const REVISION: u8 = 3;

/// The table for CPUs, as (APIC id, node) in vCPU order, and RAM ranges.
pub(crate) fn table(cpus: &[(ApicId, NodeId)], ranges: &[RamRange]) -> Vec<u8> {
    let mut body = Vec::with_capacity(12 + 24 * cpus.len() + 40 * ranges.len());
    // Reserved, 1 for compatibility; reserved (table 5-70).
    body.u32(1).reserved(8);
    for (apic_id, node) in cpus {
        cpu(&mut body, *apic_id, *node);
    }
    for range in ranges {
        memory(&mut body, range);
    }
    sdt::close(*b"SRAT", REVISION, &body)
}

fn cpu(body: &mut Vec<u8>, apic_id: ApicId, node: NodeId) {
    match u8::try_from(apic_id.0) {
        Ok(id) if apic_id.0 <= XAPIC_MAX_ID => {
            // Type 0, processor local APIC affinity: domain[7:0], APIC id, flags, SAPIC EID, domain[31:8], clock
            // domain (table 5-71).
            let [low, high @ ..] = node.0.to_le_bytes();
            body.u8(0).u8(16).u8(low).u8(id).u32(ENABLED).u8(0);
            body.extend_from_slice(&high);
            body.u32(0)
        }
        // Type 2, processor local x2APIC affinity: reserved, domain, x2APIC id, flags, clock domain, reserved
        // (table 5-73).
        _ => body.u8(2).u8(24).reserved(2).u32(node.0).u32(apic_id.0).u32(ENABLED).u32(0).reserved(4),
    };
}

fn memory(body: &mut Vec<u8>, range: &RamRange) {
    // Type 1, memory affinity: domain, reserved, base, length, reserved, flags, reserved (table 5-72). Enabled, and
    // neither hot-pluggable nor non-volatile.
    body.u8(1).u8(40).u32(range.node.0).reserved(2).u64(range.start).u64(range.len_bytes);
    body.reserved(4).u32(ENABLED).reserved(8);
}
