// SPDX-License-Identifier: Apache-2.0
//! Placement at start: from the host, the guest and the wishes to one CPU per vCPU, each with its reason.
//!
//! Floor by floor: first every usable CPU gets at most one vCPU, unclaimed CPUs before claimed ones; only when all have
//! one does any get a second. On each floor the guest nodes take from their home node first, then, those who do not
//! fit, from the nearest others.
//!
//! Invariant: every place is usable, and two vCPUs share a CPU only if every usable CPU has one (rule `house`).

use serde::Serialize;
use topology::cpu_set::CpuSet;
use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode, NodeId, VcpuIndex};

use super::affinity::affinities;
use super::floor::Floor;
use super::homes::homes;
use super::seats::{Choice, Need, Seats};
use super::{Decision, Guest, Mode, Place, PlacementError, Rule, RunnerUp, Wishes};

/// Where a guest node's memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Home {
    /// The guest node.
    pub guest: NodeId,
    /// The host node its memory should be on; `None` if the kernel decides.
    pub host: Option<HostNode>,
}

/// Something the user should be told about a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "kebab-case")]
pub enum Note {
    /// More vCPUs than CPUs: these carry more than one.
    Shared {
        /// CPUs with two vCPUs or more.
        cpus: CpuSet<HostCpu>,
    },
    /// CPUs that another VM claimed carry vCPUs of this one too.
    DoubleBooked {
        /// The CPUs.
        cpus: CpuSet<HostCpu>,
    },
    /// vCPUs that did not fit on their node's home.
    Spilled {
        /// The guest node.
        guest: NodeId,
        /// Its vCPUs elsewhere.
        vcpus: CpuSet<VcpuIndex>,
    },
    /// The home has less free memory than the guest node needs.
    MemoryShort {
        /// The guest node.
        guest: NodeId,
        /// Its home.
        host: HostNode,
    },
}

/// A start placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Place of every vCPU by index; empty in mode `none`.
    pub places: Vec<Place>,
    /// Home of every guest node.
    pub homes: Vec<Home>,
    /// What the user should be told.
    pub notes: Vec<Note>,
}

/// Makes a start placement.
///
/// # Errors
/// [`PlacementError`] if a wish cannot be met: a pinned CPU that is not usable, a host node that does not exist or is
/// full, every CPU claimed.
pub fn plan(host: &HostTopology, guest: &Guest, wishes: &Wishes) -> Result<Plan, PlacementError> {
    if guest.vcpus.is_empty() {
        return Err(PlacementError::NoVcpus);
    }
    let nodes = guest.nodes.len();
    if let Some(index) = guest.vcpus.iter().position(|vcpu| vcpu.node >= nodes) {
        return Err(PlacementError::NoSuchGuestNode { vcpu: vcpu(index), node: guest.vcpus[index].node, nodes });
    }
    let floor = Floor::new(host, wishes)?;
    match &wishes.mode {
        Mode::None => Ok(Plan { places: Vec::new(), homes: undecided(guest), notes: Vec::new() }),
        Mode::Pin(cpus) => pinned(host, guest, cpus),
        _ => Builder::new(floor, guest, wishes)?.run(),
    }
}

fn undecided(guest: &Guest) -> Vec<Home> {
    guest.nodes.iter().map(|node| Home { guest: node.id, host: node.host_node }).collect()
}

fn pinned(host: &HostTopology, guest: &Guest, cpus: &CpuSet<HostCpu>) -> Result<Plan, PlacementError> {
    let usable = || host.usable().to_string();
    let absent: CpuSet<HostCpu> = cpus.iter().filter(|cpu| host.index_of(*cpu).is_none()).collect();
    if !absent.is_empty() {
        return Err(PlacementError::PinAbsent { cpus: absent, usable: usable() });
    }
    let forbidden = cpus.difference(host.usable()).difference(host.isolated());
    if !forbidden.is_empty() {
        return Err(PlacementError::PinForbidden { cpus: forbidden, usable: usable() });
    }
    let first: Vec<HostCpu> = cpus.iter().collect();
    if first.is_empty() {
        return Err(PlacementError::PinEmpty);
    }
    let place = |index: usize| Place {
        decision: Decision {
            vcpu: vcpu(index),
            from: None,
            to: first[index % first.len()],
            swap_with: None,
            rule: Rule::Pin,
            score: 0,
            runner_up: None,
        },
        affinity: cpus.clone(),
    };
    let places: Vec<Place> = (0..guest.vcpus.len()).map(place).collect();
    let shared = (guest.vcpus.len() > first.len()).then(|| Note::Shared { cpus: cpus.clone() });
    Ok(Plan { places, homes: undecided(guest), notes: shared.into_iter().collect() })
}

pub(super) fn vcpu(index: usize) -> VcpuIndex {
    VcpuIndex(u32::try_from(index).unwrap_or(u32::MAX))
}

struct Builder<'a> {
    floor: Floor<'a>,
    guest: &'a Guest,
    mode: &'a Mode,
    homes: Vec<usize>,
    /// vCPUs of every guest node that have no place yet, ascending.
    waiting: Vec<Vec<usize>>,
    decisions: Vec<Option<Decision>>,
}

impl<'a> Builder<'a> {
    fn new(floor: Floor<'a>, guest: &'a Guest, wishes: &'a Wishes) -> Result<Self, PlacementError> {
        let homes = homes(&floor, guest, &wishes.mode)?;
        let mut waiting = vec![Vec::new(); guest.nodes.len()];
        for (index, vcpu) in guest.vcpus.iter().enumerate() {
            waiting[vcpu.node].push(index);
        }
        Ok(Self { floor, guest, mode: &wishes.mode, homes, waiting, decisions: vec![None; guest.vcpus.len()] })
    }

    fn run(mut self) -> Result<Plan, PlacementError> {
        let levels = self.floor.claim_levels();
        let mut own = 0;
        while self.waiting.iter().any(|waiting| !waiting.is_empty()) {
            for &claims in &levels {
                self.settle(own, claims);
            }
            own += 1;
        }
        Ok(self.finish())
    }

    /// Fills the CPUs that have `own` vCPUs and `claims` claims: homes first, then the nearest others.
    fn settle(&mut self, own: u32, claims: u32) {
        let anywhere = !self.floor.rules.numa || (*self.mode == Mode::Spread && self.guest.nodes.len() == 1);
        for node in 0..self.homes.len() {
            let home = Some(self.homes[node]).filter(|_| !anywhere || self.guest.nodes[node].host_node.is_some());
            self.fill(node, home, own, claims);
        }
        // Without the house rule a vCPU rather shares a CPU at home than leaves; a home without CPUs is no home.
        let stay = |floor: &Floor<'_>, home: usize| {
            !floor.rules.house && floor.usable().any(|cpu| floor.host.cpus()[cpu].node == home)
        };
        for node in 0..self.homes.len() {
            if stay(&self.floor, self.homes[node]) {
                continue;
            }
            for other in self.nearest(self.homes[node]) {
                self.fill(node, Some(other), own, claims);
            }
        }
    }

    fn nearest(&self, home: usize) -> Vec<usize> {
        let host = self.floor.host;
        let mut others: Vec<usize> = (0..host.nodes().len()).filter(|&node| node != home).collect();
        others.sort_by_key(|&node| host.distance(home, node));
        others
    }

    /// Gives vacant CPUs of one host node (or of all) to waiting vCPUs of one guest node, unit by unit.
    fn fill(&mut self, node: usize, place: Option<usize>, own: u32, claims: u32) {
        while let Some((unit, clustered)) = self.next_unit(node) {
            let vacant = self.floor.vacant(place, own, claims);
            if vacant.is_empty() {
                return;
            }
            let siblings =
                self.floor.rules.whole_core && self.floor.host.has_smt() && self.guest.threads_per_core() > 1;
            let need = Need { count: unit.len().min(vacant.len()), clustered, siblings, mode: self.mode };
            let seats = Seats::new(&self.floor, &vacant, &need);
            let choice = seats.choose(&self.floor, &need);
            self.seat(node, &unit, &seats, &choice);
        }
    }

    /// The waiting vCPUs that should be together: a guest cluster if the guest has several, else all.
    fn next_unit(&self, node: usize) -> Option<(Vec<usize>, bool)> {
        let waiting = &self.waiting[node];
        let cluster = |index: &usize| self.guest.vcpus[*index].cluster;
        let first = cluster(waiting.first()?);
        let of_node = self.guest.vcpus.iter().filter(|vcpu| vcpu.node == node);
        let clustered = of_node.clone().any(|vcpu| vcpu.cluster != first);
        if !clustered || *self.mode != Mode::Auto {
            return Some((waiting.clone(), false));
        }
        Some((waiting.iter().copied().filter(|index| cluster(index) == first).collect(), true))
    }

    fn seat(&mut self, node: usize, unit: &[usize], seats: &Seats, choice: &Choice) {
        let judge = Judge { builder: self, seats, choice, home: self.homes[node] };
        let runner_up = judge.runner_up();
        let decided: Vec<Decision> =
            unit.iter().zip(&choice.cpus).map(|(&index, &cpu)| judge.decision(index, cpu, runner_up)).collect();
        for (decision, &cpu) in decided.into_iter().zip(&choice.cpus) {
            self.floor.put(cpu);
            self.decisions[decision.vcpu.index()] = Some(decision);
        }
        let decisions = &self.decisions;
        self.waiting[node].retain(|&index| decisions[index].is_none());
    }

    fn finish(self) -> Plan {
        let notes = self.notes();
        let host = self.floor.host;
        let decisions: Vec<Decision> = self.decisions.into_iter().flatten().collect();
        let cpus: Vec<HostCpu> = decisions.iter().map(|decision| decision.to).collect();
        let affinities = affinities(host, &cpus).into_iter();
        let places = decisions.into_iter().zip(affinities).map(|(decision, affinity)| Place { decision, affinity });
        let places = places.collect();
        let home = |(node, &home): (&super::GuestNode, &usize)| Home {
            guest: node.id,
            host: (self.floor.rules.numa || node.host_node.is_some()).then(|| host.nodes()[home].id),
        };
        let homes = self.guest.nodes.iter().zip(&self.homes).map(home).collect();
        Plan { places, homes, notes }
    }

    fn notes(&self) -> Vec<Note> {
        let cpus = self.floor.host.cpus();
        let set = |keep: &dyn Fn(usize) -> bool| -> CpuSet<HostCpu> {
            (0..cpus.len()).filter(|&cpu| keep(cpu)).map(|cpu| cpus[cpu].id).collect()
        };
        let shared = set(&|cpu| self.floor.own(cpu) > 1);
        let double = set(&|cpu| self.floor.own(cpu) > 0 && self.floor.claims(cpu) > 0);
        let mut notes = Vec::new();
        notes.extend((!shared.is_empty()).then_some(Note::Shared { cpus: shared }));
        notes.extend((!double.is_empty()).then_some(Note::DoubleBooked { cpus: double }));
        let mut promised = vec![0u64; self.floor.host.nodes().len()];
        for (node, &home) in self.guest.nodes.iter().zip(&self.homes) {
            promised[home] = promised[home].saturating_add(node.memory_bytes);
            let host = &self.floor.host.nodes()[home];
            if self.floor.rules.numa && host.free_bytes.is_some_and(|free| free < promised[home]) {
                notes.push(Note::MemoryShort { guest: node.id, host: host.id });
            }
        }
        notes.extend((0..self.homes.len()).filter_map(|node| self.spilled(node)));
        notes
    }

    fn spilled(&self, node: usize) -> Option<Note> {
        let spread = *self.mode == Mode::Spread && self.guest.nodes.len() == 1;
        if !self.floor.rules.numa || spread {
            return None;
        }
        let home = &self.floor.host.nodes()[self.homes[node]];
        let away = |(index, decision): (usize, &Option<Decision>)| {
            let to = (*decision)?.to;
            (self.guest.vcpus[index].node == node && !home.cpus.contains(to)).then(|| vcpu(index))
        };
        let vcpus: CpuSet<VcpuIndex> = self.decisions.iter().enumerate().filter_map(away).collect();
        (!vcpus.is_empty()).then_some(Note::Spilled { guest: self.guest.nodes[node].id, vcpus })
    }
}

/// Says why a unit's CPUs are better than the best CPU that was left.
struct Judge<'a> {
    builder: &'a Builder<'a>,
    seats: &'a Seats,
    choice: &'a Choice,
    home: usize,
}

impl Judge<'_> {
    /// The best CPU that the unit did not get: next in its list, or else the best of the whole host.
    fn runner_up(&self) -> Option<usize> {
        let taken = |cpu: &usize| self.choice.cpus.contains(cpu);
        if let Some(&cpu) = self.seats.list.iter().find(|cpu| !taken(cpu)) {
            return Some(cpu);
        }
        let floor = &self.builder.floor;
        let key = |cpu: &usize| {
            let far = floor.host.distance(self.home, floor.host.cpus()[*cpu].node);
            (floor.own(*cpu), floor.claims(*cpu), far, *cpu)
        };
        floor.usable().filter(|cpu| !taken(cpu)).min_by_key(key)
    }

    fn decision(&self, index: usize, cpu: usize, runner_up: Option<usize>) -> Decision {
        let cpus = self.builder.floor.host.cpus();
        let mine = self.scores(cpu);
        let (rule, score, runner_up) = match runner_up {
            None => (mine[0].0, mine[0].1, None),
            Some(other) => {
                let theirs = self.scores(other);
                let decisive = mine.iter().zip(&theirs).find(|(a, b)| a.1 > b.1);
                let (rule, score, second) = decisive.map_or((Rule::LowestNumber, 0, 0), |(a, b)| (a.0, a.1, b.1));
                (rule, score, Some(RunnerUp { cpu: cpus[other].id, score: second }))
            }
        };
        Decision { vcpu: vcpu(index), from: None, to: cpus[cpu].id, swap_with: None, rule, score, runner_up }
    }

    /// A CPU by every rule, most important first.
    fn scores(&self, cpu: usize) -> Vec<(Rule, i64)> {
        let floor = &self.builder.floor;
        let at = floor.host.cpus()[cpu];
        let place = self.seats.list.iter().position(|&seat| seat == cpu);
        let sharers = place.map_or(0, |place| self.seats.sharers[place]);
        let inside = self.choice.region.map_or(0, |(rule, region)| {
            i64::from(if rule == Rule::Cluster { at.cluster == region } else { at.llc == region })
        });
        let core = if self.seats.siblings {
            let free = self.seats.list.iter().filter(|&&seat| floor.host.cpus()[seat].core == at.core).count();
            (Rule::Siblings, i64::try_from(free).unwrap_or(i64::MAX))
        } else {
            (Rule::WholeCore, -i64::from(sharers))
        };
        let spread = *self.builder.mode == Mode::Spread;
        let order = place.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX);
        vec![
            (Rule::House, -i64::from(floor.own(cpu))),
            (Rule::Claims, -i64::from(floor.claims(cpu))),
            (Rule::Numa, if floor.rules.numa { -i64::from(floor.host.distance(self.home, at.node)) } else { 0 }),
            core,
            (self.choice.region.map_or(Rule::Llc, |region| region.0), inside),
            (Rule::Asym, i64::from(floor.rank(cpu))),
            (Rule::Spread, if spread { -order } else { 0 }),
        ]
    }
}
