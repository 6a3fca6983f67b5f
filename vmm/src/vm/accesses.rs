// SPDX-License-Identifier: Apache-2.0
//! The guest's accesses on their way to the devices: one bus for ports, one for memory.

use devices::bus::{Bus, Width};

use crate::vcpu::run_loop::AccessHandler;

/// The two buses of a machine.
pub struct Buses {
    /// I/O ports.
    pub ports: Bus,
    /// Addresses that are not RAM.
    pub memory: Bus,
}

/// The width of an access. KVM hands out the architecture's widths only; an odd length (an access that crosses a page
/// is split by KVM) is served byte by byte.
fn width(bytes: usize) -> Width {
    Width::from_bytes(bytes).unwrap_or(Width::Byte)
}

impl AccessHandler for Buses {
    fn port_read(&self, port: u16, width_bytes: u8, data: &mut [u8]) {
        self.ports.read(u64::from(port), width(usize::from(width_bytes)), data);
    }

    fn port_write(&self, port: u16, width_bytes: u8, data: &[u8]) {
        self.ports.write(u64::from(port), width(usize::from(width_bytes)), data);
    }

    fn mmio_read(&self, gpa: u64, data: &mut [u8]) {
        match Width::from_bytes(data.len()) {
            Some(width) => self.memory.read(gpa, width, data),
            None => (gpa..).zip(data).for_each(|(gpa, byte)| {
                self.memory.read(gpa, Width::Byte, std::slice::from_mut(byte));
            }),
        }
    }

    fn mmio_write(&self, gpa: u64, data: &[u8]) {
        match Width::from_bytes(data.len()) {
            Some(width) => self.memory.write(gpa, width, data),
            None => (gpa..).zip(data).for_each(|(gpa, byte)| {
                self.memory.write(gpa, Width::Byte, std::slice::from_ref(byte));
            }),
        }
    }
}
