// SPDX-License-Identifier: Apache-2.0
//! What the devices of a machine counted, collected for report and summary.

use std::fmt;

use devices::bus::Bus;

use crate::report::{DevicesReport, Space, Unclaimed};
use crate::vm::parts::Parts;

/// Of a machine at its end.
pub(super) fn of_machine(parts: &Parts) -> DevicesReport {
    let serial = parts.console.counters();
    let shrugged = parts.end.shrugged();
    let unclaimed = [(Space::Port, &parts.buses.ports), (Space::Memory, &parts.buses.memory)];
    DevicesReport {
        dropped_bytes: serial.dropped_bytes,
        interrupts_failed: serial.interrupts_failed + parts.power.interrupts_failed(),
        crash_loaded: shrugged.crash_loaded,
        unsupported_sleeps: shrugged.unsupported_sleeps,
        unclaimed: unclaimed.into_iter().flat_map(|(space, bus)| of_bus(space, bus)).collect(),
    }
}

fn of_bus(space: Space, bus: &Bus) -> impl Iterator<Item = Unclaimed> {
    let counts = bus.unclaimed().into_iter();
    counts.map(move |count| Unclaimed { space, address: count.address, reads: count.reads, writes: count.writes })
}

/// One line, if there is anything to tell.
pub(super) fn tell(f: &mut fmt::Formatter<'_>, devices: Option<&DevicesReport>) -> fmt::Result {
    match devices.map(ToString::to_string).filter(|text| !text.is_empty()) {
        Some(text) => writeln!(f, "  devices    {text}"),
        None => Ok(()),
    }
}
