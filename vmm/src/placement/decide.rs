// SPDX-License-Identifier: Apache-2.0
//! One decision about a whole machine: looks at the claims of others, asks `policy::placement`, and claims.
//!
//! Between start and live, which both need it. Invariant: looking and claiming happen under one lock.

use policy::placement::{self, Guest, Mode, Note, Rules, Wishes};
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::HostCpu;

use super::confine;
use super::error::StartError;
use super::site::Site;
use crate::config::PlacementConfig;
use crate::host::registry::{Others, OwnClaim, Record, Registry, RegistryError, Turn};

/// What a decision is made by.
pub(super) struct Deciding<'a> {
    pub(super) config: &'a PlacementConfig,
    pub(super) rules: Rules,
    /// Takes what should be known of it.
    pub(super) remarks: &'a mut Vec<String>,
}

impl Deciding<'_> {
    /// Decides, and claims the CPUs. `own` is the claim that this process has already; the site takes it over.
    ///
    /// # Errors
    /// [`StartError`]; `own` is then left as it was.
    pub(super) fn site(
        &mut self,
        (host, guest): (HostTopology, Guest),
        process: CpuSet<HostCpu>,
        own: &mut Option<OwnClaim>,
    ) -> Result<Site, StartError> {
        let registry = match Registry::of_this_user() {
            _ if self.config.mode == Mode::None => None,
            Ok(registry) => Some(registry),
            Err(error) => self.uncoordinated(&error.to_string())?,
        };
        let turn = match registry.as_ref().map(Registry::turn).transpose() {
            Ok(turn) => turn,
            Err(error) => self.uncoordinated(&error.to_string())?,
        };
        let others = turn.as_ref().map(|turn| turn.look()).unwrap_or_default();
        for path in &others.unreadable {
            self.remarks.push(format!("the claim {} cannot be read and is ignored", path.display()));
        }
        let wishes = Wishes { mode: self.config.mode.clone(), rules: self.rules, claims: others.claims() };
        let refused = |source| StartError::Plan { placement: self.config.to_string(), source };
        let plan = placement::plan(&host, &guest, &wishes).map_err(refused)?;
        let places: Vec<HostCpu> = plan.places.iter().map(|place| place.decision.to).collect();
        let wanted = confine::union(plan.places.iter().map(|place| &place.affinity));
        self.agree(&wanted, &others)?;
        let cpus = match self.config.mode {
            Mode::Pin(_) => plan.places.iter().map(|place| place.affinity.clone()).collect(),
            _ => confine::vcpus(&host, &places, &wishes.claims, &[]),
        };
        self.remarks.extend(plan.notes.iter().filter(|note| worth_saying(note)).map(ToString::to_string));
        let vcpus = u32::try_from(guest.vcpus.len()).unwrap_or(u32::MAX);
        let record = Record { pid: std::process::id(), vcpus, cpus: wanted, exclusive: self.config.exclusive };
        let own = match turn.map(|turn| claim(&turn, own, record)).transpose() {
            Ok(claimed) => claimed,
            Err(error) => self.uncoordinated(&error.to_string())?,
        };
        Ok(Site { others: None, host, guest, process, plan, claims: wishes.claims, own, cpus })
    }

    /// There is no registry: said, or refused where one is needed.
    fn uncoordinated<T>(&mut self, reason: &str) -> Result<Option<T>, StartError> {
        if self.config.exclusive {
            return Err(StartError::NoRegistry { placement: self.config.to_string(), reason: reason.to_owned() });
        }
        self.remarks.push(reason.to_owned());
        Ok(None)
    }

    /// Refuses what others keep, or what this VM wants to keep; says what is shared.
    fn agree(&mut self, wanted: &CpuSet<HostCpu>, others: &Others) -> Result<(), StartError> {
        let meet = |record: &&Record| !record.cpus.intersection(wanted).is_empty();
        let mut meeting = others.records.iter().filter(meet).peekable();
        if meeting.peek().is_none() {
            return Ok(());
        }
        let refused = self.config.exclusive || meeting.clone().any(|record| record.exclusive);
        let cpus = confine::union(meeting.clone().map(|record| &record.cpus)).intersection(wanted);
        let pids: Vec<String> = meeting.map(|record| record.pid.to_string()).collect();
        let pids = pids.join(", ");
        if refused {
            return Err(StartError::Claimed { placement: self.config.to_string(), cpus, pids });
        }
        self.remarks.push(format!("CPUs {cpus} are shared with other VMs (processes {pids})"));
        Ok(())
    }
}

/// Claims, in place of what the process has claimed already.
fn claim(turn: &Turn<'_>, own: &mut Option<OwnClaim>, record: Record) -> Result<OwnClaim, RegistryError> {
    if let Some(old) = own.as_mut() {
        old.update(record.cpus.clone(), record.exclusive)?;
    }
    own.take().map_or_else(|| turn.claim(record), Ok)
}

/// Who shares with whom is said by process; vCPUs that share CPUs among themselves are what was asked for.
fn worth_saying(note: &Note) -> bool {
    matches!(note, Note::Spilled { .. } | Note::MemoryShort { .. })
}
