// SPDX-License-Identifier: Apache-2.0
//! Machines for the tests of the tables and of the doctor.

use super::{IoApic, Platform, PortDevice, PowerPorts};
use crate::guest::{GuestTopology, TopologyRequest};
use crate::id::NodeId;
use crate::memory_map::{AddressSpace, MemoryMap};

pub(crate) const GIB: u64 = 1 << 30;

/// The monitor's layout, with room for any machine.
pub(crate) fn platform() -> Platform {
    Platform {
        rsdp_gpa: 0xE_0000,
        tables_gpa: 0xE_0030,
        tables_len_bytes: 16 << 20,
        io_apic: IoApic { id: 0, gpa: 0xFEC0_0000 },
        local_apic_gpa: 0xFEE0_0000,
        serial: PortDevice { port: 0x3F8, gsi: 4 },
        power: PowerPorts { sleep_control: 0x600, sleep_status: 0x601, reset: 0x602, reset_value: 1 },
        event_device: PortDevice { port: 0x603, gsi: 9 },
        pvpanic_port: 0x505,
    }
}

pub(crate) fn map(topology: &GuestTopology) -> MemoryMap {
    MemoryMap::new(topology, &AddressSpace { gap_start: 3 * GIB, gap_end: 4 * GIB, width_bits: 52 }).unwrap()
}

pub(crate) fn even(cpus: u32, nodes: u32) -> TopologyRequest {
    TopologyRequest::even(cpus, nodes, u64::from(nodes) * GIB).unwrap()
}

pub(crate) fn machine(request: &TopologyRequest) -> GuestTopology {
    GuestTopology::new(request).unwrap()
}

/// Two CPUs on two nodes, farther from 1 to 0 than back.
pub(crate) fn lopsided() -> GuestTopology {
    let distances = vec![(NodeId(0), NodeId(1), 21), (NodeId(1), NodeId(0), 31)];
    machine(&TopologyRequest { distances, ..even(2, 2) })
}
