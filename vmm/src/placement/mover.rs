// SPDX-License-Identifier: Apache-2.0
//! One look at a running machine: has the host changed (CPUs, cpuset, claims of others), who waits, what does
//! `policy::placement::Balancer` say, and do it.
//!
//! Owned by the thread of [`super::live`]. Invariant: what it cannot do it counts.

use std::time::Instant;

use policy::placement::{Balancer, Config, Decision, FULL, Mode, Rule, Rules, Snapshot};
use policy::time::Nanos;
use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::account::Account;
use super::confine;
use super::crew::Crew;
use super::follow::Away;
use super::live::Left;
use super::loads::{Counters, Window, cpu_times};
use super::memory::NodeMemory;
use super::pairs::Pairs;
use super::runqueues::Runqueues;
use super::site::Site;
use crate::config::PlacementConfig;
use crate::host::output::tell;
use crate::host::registry::Registry;
use crate::host::{affinity, sysfs};

/// From this part of its time on a vCPU counts as waiting.
const WAITS: u32 = FULL / 16;
/// Looks between two questions where memory is: pages seldom move by themselves.
const MEMORY_EVERY: u64 = 16;
/// Pages of a guest node that are asked for.
const MEMORY_PAGES: usize = 512;

/// What tells that the host has changed.
type Signature = (Option<String>, Option<String>, Option<CpuSet<HostCpu>>);

/// What a look came to.
pub(super) enum Looked {
    /// The host changed, or vCPUs moved.
    Changed,
    /// Somebody waits, and nothing is to be done about it.
    Waiting,
    /// Nothing.
    Calm,
}

/// What is asked for of placement.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) config: PlacementConfig,
    pub(super) rules: Rules,
}

pub(super) struct Mover {
    pub(super) asked: Asked,
    pub(super) site: Site,
    pub(super) balancer: Balancer,
    /// Where each vCPU was placed last; empty where the kernel decides.
    pub(super) places: Vec<HostCpu>,
    /// The last decision about each.
    pub(super) decisions: Vec<Option<Decision>>,
    /// CPUs that somebody named for a vCPU.
    pub(super) held: Vec<Option<CpuSet<HostCpu>>>,
    pub(super) crew: Crew,
    pub(super) window: Window,
    pub(super) memory: Vec<NodeMemory>,
    /// For each guest node, bytes on each host node.
    located: Vec<Vec<u64>>,
    pub(super) registry: Option<Registry>,
    signature: Signature,
    pub(super) began: Instant,
    /// Memory that should follow its vCPUs.
    pub(super) away: Away,
    pub(super) pairs: Pairs,
    pub(super) runqueues: Runqueues,
    pub(super) account: Account,
    /// The claim could not be renewed, which was said.
    claim_is_old: bool,
}

impl Mover {
    pub(super) fn new(asked: Asked, site: Site, memory: Vec<NodeMemory>, crew: Crew, pairs: Pairs) -> Self {
        widen(&site.process);
        let config = Config { rules: asked.rules, ..Config::default() };
        let mut mover = Self {
            balancer: Balancer::new(site.host.clone(), site.guest.clone(), config, Nanos(0)),
            places: Vec::new(),
            decisions: Vec::new(),
            held: vec![None; crew.len()],
            window: Window::default(),
            memory,
            located: Vec::new(),
            registry: site.own.is_some().then(Registry::of_this_user).and_then(Result::ok),
            // Differs from any: what was decided on may be old already.
            signature: Signature::default(),
            began: Instant::now(),
            away: Away::default(),
            pairs,
            runqueues: Runqueues::default(),
            account: Account::default(),
            claim_is_old: false,
            crew,
            asked,
            site,
        };
        mover.window = Window::open(Nanos(0), mover.counters());
        mover.take_plan();
        mover
    }

    /// Takes the places of the site's plan.
    pub(super) fn take_plan(&mut self) {
        self.places = self.site.plan.places.iter().map(|place| place.decision.to).collect();
        self.decisions = self.site.plan.places.iter().map(|place| Some(place.decision)).collect();
        self.decisions.resize(self.crew.len(), None);
    }

    /// Whether there is anything to decide: with one CPU there is no choice. A process that had several goes on looking
    /// when all but one are taken from it: they may come back.
    pub(super) fn decides(&self) -> bool {
        let several = self.site.process.len().max(self.site.host.usable().len()) > 1;
        self.asked.config.mode == Mode::Auto && !self.places.is_empty() && several
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What is left at the end.
    pub(super) fn leave(mut self) -> Left {
        self.account.runqueues = self.runqueues.grants();
        Left { site: self.site, account: self.account, memory: self.memory }
    }

    /// One look.
    pub(super) fn look(&mut self) -> Looked {
        let begun = Instant::now();
        let looked = self.look_now();
        self.account.spent += begun.elapsed();
        looked
    }

    fn look_now(&mut self) -> Looked {
        let now = self.now();
        let changed = self.notice();
        let counters = self.counters();
        let loads = self.window.close(now, counters, &self.site.host, (&self.places, &self.site.claims));
        let waits = loads.vcpus.iter().any(|load| load.waiting >= WAITS);
        if waits {
            self.runqueues.want();
        }
        if self.account.looks.is_multiple_of(MEMORY_EVERY) {
            let host = &self.site.host;
            self.located = self.memory.iter().map(|node| node.bytes_on(host, MEMORY_PAGES)).collect();
        }
        self.account.looks += 1;
        let deciding = Instant::now();
        let pairs = self.wished_pairs(now);
        let snapshot = Snapshot { now, vcpus: &loads.vcpus, cpus: &loads.cpus, memory: &self.located, pairs: &pairs };
        let pass = self.balancer.pass(&snapshot);
        self.balancer.charge(u64::try_from(deciding.elapsed().as_nanos()).unwrap_or(u64::MAX), now);
        let moves = self.allowed(pass.moves);
        // Two machines that look at the same time must not move to one CPU: until the new claim stands, it is this one's turn.
        let registry = self.registry.clone().filter(|_| !moves.is_empty());
        let turn = registry.as_ref().and_then(|registry| registry.turn().ok());
        let overtaken = turn.as_ref().is_some_and(|turn| turn.look().claims() != self.site.claims);
        let moves = if overtaken { Vec::new() } else { moves };
        let changed = self.pairs_done(&moves, now) || changed;
        if changed || !moves.is_empty() {
            self.carry_out(&moves, changed);
        }
        self.follow(now);
        match waits {
            _ if changed || overtaken || !moves.is_empty() => Looked::Changed,
            true => Looked::Waiting,
            false => Looked::Calm,
        }
    }

    /// What everything has had so far, and what is on the runqueues.
    fn counters(&mut self) -> Counters {
        let cpus = sysfs::read_small("/proc/stat").map(|text| cpu_times(&text)).unwrap_or_default();
        let waits = self.runqueues.waits();
        let others = self.runqueues.now(self.site.host.usable(), self.crew.tids());
        Counters { tasks: self.crew.times(), cpus, waits, others }
    }

    /// Takes note of what changed outside: whether anything did.
    fn notice(&mut self) -> bool {
        let found = self.registry.as_ref().map(|registry| registry.look().claims());
        let claimed = found.filter(|found| *found != self.site.claims);
        let signature = signature();
        let mut moved = false;
        if signature != self.signature {
            // A host that cannot be read now is read again at the next look.
            if let Ok(host) = sysfs::host() {
                self.signature = signature;
                moved = host.usable() != self.site.host.usable() || host.cpus() != self.site.host.cpus();
                self.site.host = host.clone();
                self.runqueues.host_changed();
                self.balancer.host_changed(host, self.now());
            }
        }
        // Older kernels forget affinities when a cpuset changes.
        let changed = moved || claimed.is_some() || self.crew.strayed(&self.site.cpus);
        self.site.claims = claimed.unwrap_or_else(|| std::mem::take(&mut self.site.claims));
        self.account.host_changes += u64::from(changed);
        changed
    }

    /// The moves that concern nobody who is held. Who is held on CPUs that are all gone is let go.
    fn allowed(&mut self, mut moves: Vec<Decision>) -> Vec<Decision> {
        let usable = self.site.host.usable();
        for vcpu in moves.iter().filter(|one| one.rule == Rule::Evacuate).map(|one| one.vcpu.index()) {
            if let Some(held) = self.held.get_mut(vcpu) {
                held.take_if(|cpus| cpus.intersection(usable).is_empty());
            }
        }
        let is_held = |index: usize| self.held.get(index).is_some_and(Option::is_some);
        let one = |decision: &Decision| !decision.swap_with.is_some_and(|vcpu| is_held(vcpu.index()));
        moves.retain(|decision| !is_held(decision.vcpu.index()) && one(decision));
        moves
    }

    /// The CPUs of each vCPU thread as things are; empty where the kernel decides about all.
    fn wanted(&self) -> Vec<CpuSet<HostCpu>> {
        let host = &self.site.host;
        let mut cpus: Vec<CpuSet<HostCpu>> = match self.asked.config.mode {
            Mode::None if self.held.iter().all(Option::is_none) => return Vec::new(),
            Mode::None => vec![host.usable().clone(); self.crew.len()],
            Mode::Pin(_) => self.site.plan.places.iter().map(|place| place.affinity.clone()).collect(),
            _ => confine::vcpus(host, &self.places, &self.site.claims, &self.pairs.together),
        };
        for (cpus, held) in cpus.iter_mut().zip(&self.held) {
            let named = held.as_ref().map(|named| named.intersection(host.usable()));
            *cpus = named.filter(|named| !named.is_empty()).unwrap_or_else(|| cpus.clone());
        }
        cpus
    }

    /// Makes the moves, in their order. After a change of the cpuset the kernel may have put threads elsewhere, so all
    /// are put where they belong.
    pub(super) fn carry_out(&mut self, moves: &[Decision], all: bool) {
        for decision in moves {
            let from = self.places.get(decision.vcpu.index()).copied();
            let pairs = [Some((decision.vcpu, decision.to)), decision.swap_with.zip(from)];
            for (vcpu, cpu) in pairs.into_iter().flatten() {
                if let (Some(place), Some(last)) =
                    (self.places.get_mut(vcpu.index()), self.decisions.get_mut(vcpu.index()))
                {
                    *place = cpu;
                    *last = Some(*decision);
                }
            }
        }
        let cpus = self.wanted();
        let anywhere = self.site.host.usable().clone();
        for index in 0..self.crew.len() {
            let (wanted, same) = (cpus.get(index).unwrap_or(&anywhere), self.site.cpus.get(index) == cpus.get(index));
            if same && !all {
                continue;
            }
            if self.crew.put(index, wanted).is_err() {
                self.account.refused += 1;
                continue;
            }
            let decision = moves.iter().find(|decision| decision.vcpu.index() == index);
            if let Some(decision) = decision.filter(|_| !same) {
                self.account.moved(self.began.elapsed(), *decision);
            }
        }
        self.site.cpus = cpus;
        self.tell_cpus();
        self.make_room();
    }

    /// Lets the other threads keep off the vCPUs' new CPUs, and tells other VMs of them.
    fn make_room(&mut self) {
        let taken = confine::union(self.site.cpus.iter());
        let places: Vec<HostCpu> =
            if self.held.iter().any(Option::is_some) { taken.iter().collect() } else { self.places.clone() };
        let others = (!places.is_empty()).then(|| confine::others(&self.site.host, &places, &self.site.claims));
        let others = others.flatten();
        if others != self.site.others {
            self.crew.keep_others_on(others.as_ref().unwrap_or(self.site.host.usable()), &self.site.cpus);
            self.site.others = others;
        }
        if let Some(own) = &mut self.site.own {
            let cpus = match self.asked.config.mode {
                Mode::Pin(_) => taken,
                _ => places.into_iter().collect(),
            };
            // The old claim stays where the new one cannot be written: others may take the CPUs that were moved to.
            if let Err(error) = own.update(cpus, self.asked.config.exclusive)
                && !std::mem::replace(&mut self.claim_is_old, true)
            {
                tell(&format!("vmm: placement: {error}\n"));
            }
        }
    }
}

/// Lets the calling thread see what the process may use: all that its cpuset allows, unless the process was confined to
/// less than that from outside.
fn widen(process: &CpuSet<HostCpu>) {
    /// More CPUs than any kernel has: the kernel takes those that the cpuset allows.
    const EVERY_CPU: u32 = 8192;
    let (online, cpuset) = sysfs::signature(&sysfs::read_small);
    let list = |text: Option<String>| text.and_then(|text| text.parse::<CpuSet<HostCpu>>().ok());
    let online = list(online).unwrap_or_default();
    let allowed = list(cpuset).map_or(online.clone(), |cpuset| online.intersection(&cpuset));
    let wide: CpuSet<HostCpu> = if *process == allowed { CpuSet::first(EVERY_CPU) } else { process.clone() };
    // Where the kernel refuses, changes that make room go unnoticed; those that take it do not.
    let _ = affinity::pin_this_thread(wide.iter());
}

fn signature() -> Signature {
    let (online, cpuset) = sysfs::signature(&sysfs::read_small);
    (online, cpuset, affinity::of_this_thread().ok())
}
