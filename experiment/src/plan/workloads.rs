// SPDX-License-Identifier: Apache-2.0
//! From the names of workloads to what guests run: the probe guest's words, or a tool of the Linux guest.
//!
//! Invariant: all workloads of a plan are for the same system; whether their words are right is for whoever knows the guests.

use toml::Spanned;

use super::check::{Places, unknown};
use super::error::{PlanFault, Problem};
use super::file::{PlanFile, WorkloadFile};
use super::{Program, Workload};

/// What guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// The probe guest.
    Probe,
    /// Linux, with tools and an agent.
    Linux,
}

impl System {
    /// The system that a plan names; the probe guest if it names none.
    pub(super) fn of(places: &Places<'_>, written: Option<&Spanned<String>>) -> Result<Self, PlanFault> {
        let Some(written) = written else { return Ok(Self::Probe) };
        match written.get_ref().as_str() {
            "probe" => Ok(Self::Probe),
            "linux" => Ok(Self::Linux),
            other => Err(places.fault("system", written, unknown("system", other, &["probe", "linux"]))),
        }
    }

    /// Workloads that count something, and so need no table.
    const fn known(self) -> &'static [&'static str] {
        match self {
            Self::Probe => &["ebizzy", "ring", "ticket", "ipi", "spin"],
            Self::Linux => &["ebizzy", "dbench", "sysbench", "stress-ng", "hackbench", "kernbuild"],
        }
    }

    fn program(self, words: String) -> Program {
        match self {
            Self::Probe => Program::Probe(words),
            Self::Linux => Program::Linux(words),
        }
    }

    /// Memory of a guest if the plan does not say, in MiB.
    pub(super) const fn memory_mib(self) -> u32 {
        match self {
            Self::Probe => 64,
            Self::Linux => 256,
        }
    }

    /// What a run may take beside its guests' work, in seconds: starts and ends on a busy host, a kernel's boot.
    pub(super) const fn grace_s(self) -> u32 {
        match self {
            Self::Probe => 30,
            Self::Linux => 180,
        }
    }
}

pub(super) fn workloads(places: &Places<'_>, file: &PlanFile, system: System) -> Result<Vec<Workload>, PlanFault> {
    let named = file.workload.iter().map(|one| one.name.get_ref().as_str());
    let known: Vec<&str> = system.known().iter().copied().chain(named).collect();
    for workload in &file.workload {
        places.name("name", &workload.name)?;
    }
    let mut lines = file.workloads.get_ref().iter().map(|name| places.line(name)).collect::<Vec<_>>().into_iter();
    let programs = places.distinct("workloads", &file.workloads, |name| {
        let text = name.get_ref();
        let own = file.workload.iter().find(|one| one.name.get_ref() == text);
        let words = match own {
            Some(own) => words(places, own, system)?,
            None if system.known().contains(&text.as_str()) => text.clone(),
            None => return Err(places.fault("workloads", name, unknown("workload", text, &known))),
        };
        Ok((text.clone(), (text.clone(), words)))
    })?;
    let workload = |(name, words)| Workload { name, program: system.program(words), line: lines.next().unwrap_or(1) };
    Ok(programs.into_iter().map(workload).collect())
}

/// The words of a workload's own table, which are for the plan's system.
fn words(places: &Places<'_>, table: &WorkloadFile, system: System) -> Result<String, PlanFault> {
    let (key, wanted, other) = match system {
        System::Probe => ("probe", &table.probe, &table.linux),
        System::Linux => ("linux", &table.linux, &table.probe),
    };
    match (wanted, other) {
        (Some(words), None) => Ok(words.get_ref().clone()),
        (_, Some(other)) => Err(places.fault(key, other, Problem::OtherSystem { key })),
        (None, None) => Err(places.fault(key, &table.name, Problem::OtherSystem { key })),
    }
}
