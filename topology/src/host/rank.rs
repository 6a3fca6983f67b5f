// SPDX-License-Identifier: Apache-2.0
//! Which CPUs the machine prefers, and who says so.
//!
//! Invariant: ranks are used only if every online CPU has one and they differ. Equal ranks prefer nobody, so all are
//! reported as zero (research: equal ranks switch the asym rule off; kernel/sched/fair.c, `sched_asym_prefer`).

use std::fmt;

use super::text::parse_number;
use super::{Capture, Degradation, HostError, path};
use crate::id::HostCpu;

/// Where the preference among CPUs comes from, most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankSource {
    /// `cpufreq/amd_pstate_prefcore_ranking` (Documentation/admin-guide/pm/amd-pstate.rst, "preferred core").
    AmdPreferredCore,
    /// `acpi_cppc/highest_perf` (ACPI 6.5, section 8.4.6.1.1.1): what Intel's ITMT takes its priorities from.
    CppcHighestPerf,
    /// `cpu_capacity`, 1024 for the largest CPU (Documentation/ABI/testing/sysfs-devices-system-cpu).
    CpuCapacity,
    /// `cpufreq/cpuinfo_max_freq`, in kHz.
    MaxFrequency,
    /// The administrator switched preferred cores off (`sched_itmt_enabled` is 0).
    SwitchedOff,
    /// Nothing distinguishes the CPUs.
    Equal,
}

impl fmt::Display for RankSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AmdPreferredCore => "amd_pstate_prefcore_ranking",
            Self::CppcHighestPerf => "acpi_cppc/highest_perf",
            Self::CpuCapacity => "cpu_capacity",
            Self::MaxFrequency => "cpuinfo_max_freq",
            Self::SwitchedOff => "switched off by sched_itmt_enabled",
            Self::Equal => "none, all CPUs are equal",
        })
    }
}

/// Files to look at, in this order.
const SOURCES: [(RankSource, &str); 4] = [
    (RankSource::AmdPreferredCore, "cpufreq/amd_pstate_prefcore_ranking"),
    (RankSource::CppcHighestPerf, "acpi_cppc/highest_perf"),
    (RankSource::CpuCapacity, "cpu_capacity"),
    (RankSource::MaxFrequency, "cpufreq/cpuinfo_max_freq"),
];

/// The rank of every CPU and where it comes from.
pub(super) fn ranks(
    capture: &Capture,
    ids: &[HostCpu],
    degradations: &mut Vec<Degradation>,
) -> Result<(RankSource, Vec<u32>), HostError> {
    let equal = vec![0; ids.len()];
    if capture.get(path::ITMT_ENABLED) == Some("0") {
        return Ok((RankSource::SwitchedOff, equal));
    }
    for (source, file) in SOURCES {
        let mut found = Vec::with_capacity(ids.len());
        for cpu in ids {
            let path = format!("devices/system/cpu/cpu{cpu}/{file}");
            if let Some(text) = capture.get(&path) {
                found.push(parse_number(&path, text, "a whole number below 2^32")?);
            }
        }
        let missing = ids.len() - found.len();
        if missing == 0 && found.iter().any(|rank| *rank != found[0]) {
            return Ok((source, found));
        }
        if missing > 0 && !found.is_empty() {
            degradations.push(Degradation::RankIncomplete { source, cpus: missing });
        }
    }
    Ok((RankSource::Equal, equal))
}
