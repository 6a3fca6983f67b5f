// SPDX-License-Identifier: Apache-2.0
//! What the devices counted: output that was lost, interrupts that were not raised, accesses that nobody answered.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the devices counted. All zeroes, and an empty list, are a run without anything to tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesReport {
    /// Bytes of the guest's console that were lost: the output had failed, or the driver ignored a busy transmitter.
    pub dropped_bytes: u64,
    /// Interrupts that could not be raised.
    pub interrupts_failed: u64,
    /// Panics that the guest dealt with itself, a crash kernel being loaded.
    pub crash_loaded: u64,
    /// Requests for a sleep state that the machine does not have.
    pub unsupported_sleeps: u64,
    /// Accesses that no device answered, by address; ports first.
    pub unclaimed: Vec<Unclaimed>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// I/O ports.
    Port,
    /// Memory, where there is no RAM.
    Memory,
}

/// How often an address that nobody answers was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unclaimed {
    /// Where the address is.
    pub space: Space,
    /// The address; none for all that came after the first 64 of the space.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<u64>,
    /// Elements read.
    pub reads: u64,
    /// Elements written.
    pub writes: u64,
}

impl fmt::Display for DevicesReport {
    /// What is not zero, in one line; nothing if there is nothing to tell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accesses: u64 = self.unclaimed.iter().map(|count| count.reads + count.writes).sum();
        let counts = [
            (self.crash_loaded, "panics left to the guest's crash kernel"),
            (self.dropped_bytes, "bytes of the console lost"),
            (self.interrupts_failed, "interrupts not raised"),
            (self.unsupported_sleeps, "sleep requests refused"),
            (accesses, "accesses that no device answers"),
        ];
        let told = counts.into_iter().filter(|(count, _)| *count > 0);
        let texts: Vec<String> = told.map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_told() {
        assert_eq!(DevicesReport::default().to_string(), "");
        let port = Unclaimed { space: Space::Port, address: Some(0x61), reads: 3, writes: 1 };
        let report = DevicesReport { crash_loaded: 1, unclaimed: vec![port, port], ..DevicesReport::default() };
        assert_eq!(report.to_string(), "1 panics left to the guest's crash kernel, 8 accesses that no device answers");
    }
}
