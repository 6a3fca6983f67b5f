// SPDX-License-Identifier: Apache-2.0
//! What Linux complains about at boot: firmware, tables, topology, itself. Pure.

/// What no boot may say, in lower case.
const COMPLAINTS: [&str; 22] = [
    "acpi error",
    "acpi warning",
    "acpi bios",
    "acpi exception",
    "acpi: [firmware",
    "firmware bug",
    "firmware warn",
    "bios bug",
    "warning:",
    "bug:",
    "oops",
    "call trace",
    "mismatch",
    "inconsistent",
    "not consistent",
    "topology broken",
    "topology: bad",
    "cpu topo: [",
    "sched: cpu",
    "unhandled",
    "general protection",
    "lockup",
];

/// The lines of a kernel log that complain.
pub(crate) fn of(log: &str) -> Vec<&str> {
    let complains = |line: &&str| {
        let line = line.to_lowercase();
        COMPLAINTS.iter().any(|complaint| line.contains(complaint))
    };
    log.lines().filter(complains).collect()
}
