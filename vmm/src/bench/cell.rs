// SPDX-License-Identifier: Apache-2.0
//! What is compared: cells (a workload on so many vCPUs and host CPUs) and arms (ways to handle its pause loops). Pure.

use std::fmt;

use serde::Serialize;
use topology::id::HostCpu;

/// A way to handle pause loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// No handling; the guest does not even find a port.
    Off,
    /// `sched_yield` for every event.
    Yield,
    /// Park until named, for every event.
    Park,
    /// The policy.
    Act,
}

impl Arm {
    /// Every arm.
    pub const ALL: &[Self] = &[Self::Off, Self::Yield, Self::Park, Self::Act];

    /// The flags that choose it.
    #[must_use]
    pub const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Off => &["--pause", "off"],
            Self::Yield => &["--pause", "act", "--pause-mechanism", "yield"],
            Self::Park => &["--pause", "act", "--pause-mechanism", "park"],
            Self::Act => &["--pause", "act"],
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Yield => "yield",
            Self::Park => "park",
            Self::Act => "act",
        })
    }
}

/// A workload on so many vCPUs and host CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The probe guest's workload.
    pub workload: &'static str,
    /// vCPUs.
    pub vcpus: u32,
    /// Host CPUs that all vCPU threads share.
    pub cpus: Vec<HostCpu>,
}

impl Cell {
    /// All cells that these host CPUs allow, in the order of the table.
    #[must_use]
    pub fn all(cpus: &[HostCpu]) -> Vec<Self> {
        let mut cells = Vec::new();
        let mut add = |workload, vcpus: &[u32], cpus: &[HostCpu]| {
            cells.extend(vcpus.iter().map(|vcpus| Self { workload, vcpus: *vcpus, cpus: cpus.to_vec() }));
        };
        if let [one, ..] = cpus {
            add("ring", &[1, 2, 4, 8, 16], &[*one]);
        }
        if let [one, two, ..] = cpus {
            add("ring", &[2, 4, 8, 16], &[*one, *two]);
        }
        let some = &cpus[..cpus.len().min(2)];
        if let Ok(count @ 1..) = u32::try_from(some.len()) {
            for workload in ["ticket", "ipi", "ebizzy"] {
                add(workload, &[count, 2 * count, 4 * count, 8 * count], some);
            }
        }
        cells
    }

    /// Its name in tables: `ring 8/1` is eight vCPUs on one host CPU.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}/{}", self.workload, self.vcpus, self.cpus.len())
    }

    /// Whether every vCPU can have a CPU of its own.
    #[must_use]
    pub fn is_undercommitted(&self) -> bool {
        self.vcpus as usize <= self.cpus.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_need_the_cpus_they_name() {
        let names = |cpus: &[u32]| {
            let cpus: Vec<HostCpu> = cpus.iter().copied().map(HostCpu).collect();
            Cell::all(&cpus).iter().map(Cell::name).collect::<Vec<_>>()
        };
        assert!(names(&[]).is_empty());
        assert_eq!(names(&[3])[..2], ["ring 1/1", "ring 2/1"]);
        assert!(names(&[3]).contains(&"ticket 8/1".to_owned()));
        let two = names(&[0, 1, 2]);
        assert!(two.contains(&"ring 16/2".to_owned()) && two.contains(&"ebizzy 16/2".to_owned()));
    }
}
