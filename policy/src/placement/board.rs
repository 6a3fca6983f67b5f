// SPDX-License-Identifier: Apache-2.0
//! The state of the host during one rebalancing pass: who is where, and how loaded everything is.
//!
//! CPUs are dense indices into `HostTopology::cpus`, vCPUs plain indices. Invariant: counts and loads are those of the
//! moves decided so far, so that a later rule never undoes the arithmetic of an earlier one.

use topology::host::HostTopology;

use super::groups::Groups;
use super::view::{FULL, Runqueue, Snapshot};
use super::{Decision, Rule, Rules, RunnerUp, Stats};
use crate::placement::plan::vcpu;

/// A CPU that is busy for less than this counts as idle, and a vCPU that wants less as asleep: an eighth of a CPU.
pub(super) const IDLE_LOAD: u32 = FULL / 8;

/// See the module documentation.
pub(super) struct Board<'h> {
    pub(super) host: &'h HostTopology,
    pub(super) rules: Rules,
    pub(super) stats: Stats,
    /// Idle CPUs of every cache, and cores of every cache that are idle as a whole.
    pub(super) idle_in_llc: Vec<u32>,
    pub(super) whole_cores_in_llc: Vec<u32>,
    /// CPU of every vCPU.
    pub(super) at: Vec<usize>,
    /// What every vCPU would use alone, and how long it waited.
    pub(super) demand: Vec<u32>,
    pub(super) waiting: Vec<u32>,
    pub(super) decisions: Vec<Decision>,
    groups: &'h Groups,
    usable: Vec<bool>,
    here: Vec<Vec<usize>>,
    load: Vec<u32>,
    outside: Vec<u32>,
    runqueues: Vec<Runqueue>,
    claims: Vec<u32>,
    utilisation: Vec<u32>,
    busy_in_core: Vec<u32>,
    empty: usize,
    in_flight: Vec<bool>,
    moved: Vec<bool>,
    node_pairs: Vec<(usize, usize)>,
}

impl<'h> Board<'h> {
    pub(super) fn new(host: &'h HostTopology, groups: &'h Groups, rules: Rules, snapshot: &Snapshot<'_>) -> Self {
        let cpus = host.cpus().len();
        let get = |cpu: usize| snapshot.cpus.get(cpu).copied().unwrap_or_default();
        let mut board = Self {
            host,
            rules,
            stats: Stats::default(),
            idle_in_llc: vec![0; host.llcs().len()],
            whole_cores_in_llc: vec![0; host.llcs().len()],
            at: Vec::with_capacity(snapshot.vcpus.len()),
            demand: snapshot.vcpus.iter().map(super::view::VcpuLoad::demand).collect(),
            waiting: snapshot.vcpus.iter().map(|load| load.waiting).collect(),
            decisions: Vec::new(),
            groups,
            usable: (0..cpus).map(|cpu| groups.usable[cpu] && !get(cpu).exclusive).collect(),
            here: vec![Vec::new(); cpus],
            load: (0..cpus).map(|cpu| get(cpu).utilisation).collect(),
            outside: Vec::new(),
            runqueues: (0..cpus).map(|cpu| get(cpu).runqueue).collect(),
            claims: (0..cpus).map(|cpu| if rules.claims { get(cpu).claims } else { 0 }).collect(),
            utilisation: vec![0; host.llcs().len()],
            busy_in_core: vec![0; host.cores().len()],
            empty: 0,
            in_flight: vec![false; cpus],
            moved: vec![false; snapshot.vcpus.len()],
            node_pairs: Vec::new(),
        };
        board.seat(snapshot);
        board.count();
        board
    }

    fn seat(&mut self, snapshot: &Snapshot<'_>) {
        let used = self.load.clone();
        for (cpu, load) in used.iter().enumerate() {
            self.utilisation[self.host.cpus()[cpu].llc] += (*load).min(FULL);
        }
        for (index, load) in snapshot.vcpus.iter().enumerate() {
            // A CPU that went offline has no index: its vCPUs are nowhere until they are evacuated.
            let cpu = self.host.index_of(load.cpu);
            if let Some(cpu) = cpu {
                self.load[cpu] = self.load[cpu].saturating_sub(load.running);
                self.here[cpu].push(index);
            }
            self.at.push(cpu.unwrap_or(usize::MAX));
        }
        for (cpu, runqueue) in self.runqueues.iter().enumerate() {
            self.load[cpu] = runqueue.demand(self.load[cpu], used[cpu]);
        }
        self.outside.clone_from(&self.load);
        for cpu in 0..self.here.len() {
            let own: u32 = self.here[cpu].iter().map(|&vcpu| self.demand[vcpu]).sum();
            self.load[cpu] = self.load[cpu].saturating_add(own);
        }
    }

    fn count(&mut self) {
        for cpu in 0..self.here.len() {
            self.busy_in_core[self.host.cpus()[cpu].core] += u32::from(!self.is_free(cpu));
            self.empty += usize::from(self.is_usable(cpu) && self.here[cpu].is_empty());
        }
        for cpu in 0..self.here.len() {
            let at = self.host.cpus()[cpu];
            self.idle_in_llc[at.llc] += u32::from(self.is_idle(cpu));
            // Counted once, at the first thread.
            self.whole_cores_in_llc[at.llc] += u32::from(at.thread == 0 && self.whole(at.core));
        }
    }

    pub(super) fn clusters(&self, cluster: usize) -> &'h [usize] {
        &self.groups.clusters[cluster]
    }

    pub(super) fn llcs(&self, llc: usize) -> &'h [usize] {
        &self.groups.llcs[llc]
    }

    pub(super) fn nearest(&self, node: usize) -> &'h [usize] {
        &self.groups.nearest[node]
    }

    pub(super) fn node_cpus(&self, node: usize) -> &'h [usize] {
        &self.groups.nodes[node]
    }

    pub(super) fn node_of(&self, cpu: usize) -> usize {
        self.host.cpus()[cpu].node
    }

    pub(super) fn rank(&self, cpu: usize) -> u32 {
        self.host.cpus()[cpu].rank
    }

    /// Mean utilisation of a cache's CPUs, in 1024ths.
    pub(super) fn utilisation_of_llc(&self, llc: usize) -> u32 {
        let cpus = u32::try_from(self.llcs(llc).len()).unwrap_or(u32::MAX);
        self.utilisation[llc] / cpus.max(1)
    }

    pub(super) fn is_usable(&self, cpu: usize) -> bool {
        self.usable[cpu]
    }

    /// vCPUs of this VM on a CPU.
    pub(super) fn here(&self, cpu: usize) -> &[usize] {
        &self.here[cpu]
    }

    /// Load in 1024ths: what others use, and what its vCPUs want.
    pub(super) fn load(&self, cpu: usize) -> u32 {
        self.load[cpu]
    }

    /// Whether nobody has it: no vCPU of this VM, no claim, nothing else running.
    fn is_free(&self, cpu: usize) -> bool {
        self.here[cpu].is_empty()
            && self.claims[cpu] == 0
            && self.outside[cpu] < IDLE_LOAD
            && !self.others_are_there(cpu)
    }

    /// Whether tasks of others are known to be on a CPU's runqueue now.
    fn others_are_there(&self, cpu: usize) -> bool {
        self.runqueues[cpu].now.is_some_and(|tasks| tasks > 0)
    }

    /// Whether little runs on a CPU and, as far as is known, none of it is somebody else's at this moment.
    pub(super) fn is_calm(&self, cpu: usize) -> bool {
        self.load[cpu] < IDLE_LOAD && !self.others_are_there(cpu)
    }

    /// Whether a CPU has several vCPUs, or would not be idle without its own.
    pub(super) fn is_disturbed(&self, cpu: usize) -> bool {
        self.here[cpu].len() > 1 || self.outside[cpu] >= IDLE_LOAD || self.others_are_there(cpu)
    }

    /// Whether a CPU's runqueue is known to hold nothing but this vCPU, so that it waits for nobody any more.
    pub(super) fn is_only_task(&self, vcpu: usize) -> bool {
        let at = self.at[vcpu];
        self.here.get(at).is_some_and(|here| here.len() == 1) && self.runqueues[at].now == Some(0)
    }

    /// Whether a move for want of time would take the only task of a better CPU (`sched_balance_find_src_rq`,
    /// kernel/sched/fair.c: `capacity_greater` and `nr_running == 1`).
    pub(super) fn takes_the_only_task(&self, vcpu: usize, to: usize) -> bool {
        self.rules.asym && self.is_only_task(vcpu) && self.rank(to) < self.rank(self.at[vcpu])
    }

    /// Whether a vCPU could go there and have it alone.
    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        self.is_usable(cpu) && self.is_free(cpu) && !self.in_flight[cpu]
    }

    /// Whether the whole core is idle.
    pub(super) fn core_is_idle(&self, cpu: usize) -> bool {
        self.busy_in_core[self.host.cpus()[cpu].core] == 0
    }

    /// Whether nothing on a CPU's core runs for long, whoever it belongs to.
    pub(super) fn core_rests(&self, cpu: usize) -> bool {
        self.groups.cores[self.host.cpus()[cpu].core].iter().all(|&thread| self.is_calm(thread))
    }

    /// Busy threads of a CPU's core, itself included.
    pub(super) fn core_busy(&self, cpu: usize) -> u32 {
        self.busy_in_core[self.host.cpus()[cpu].core]
    }

    /// Usable CPUs without a vCPU of this VM.
    pub(super) fn empty(&self) -> usize {
        self.empty
    }

    /// Whether a usable CPU has no vCPU of this VM, and no migration on the way.
    pub(super) fn is_empty(&self, cpu: usize) -> bool {
        self.is_usable(cpu) && self.here[cpu].is_empty() && !self.in_flight[cpu]
    }

    /// Whether a vCPU has not moved in this pass, nor is anything in flight on its CPU.
    pub(super) fn may_leave(&self, vcpu: usize) -> bool {
        !self.moved[vcpu] && self.at[vcpu] != usize::MAX && !self.in_flight[self.at[vcpu]]
    }

    pub(super) fn in_flight(&self, cpu: usize) -> bool {
        self.in_flight[cpu]
    }

    /// The house rule: a CPU with a vCPU takes another only if no CPU is, or becomes, empty.
    pub(super) fn house_allows(&self, vcpu: usize, to: usize) -> bool {
        !self.rules.house
            || self.here[to].is_empty()
            || (self.empty == 0 && self.here.get(self.at[vcpu]).is_none_or(|here| here.len() > 1))
    }

    /// Whether a voluntary move between two nodes has been decided already.
    pub(super) fn node_pair_used(&self, from: usize, to: usize) -> bool {
        self.node_pairs.contains(&(from.min(to), from.max(to)))
    }

    pub(super) fn use_node_pair(&mut self, from: usize, to: usize) {
        self.node_pairs.push((from.min(to), from.max(to)));
    }

    /// Moves a vCPU and writes the decision down.
    pub(super) fn go(&mut self, vcpu: usize, to: usize, why: (Rule, i64), runner_up: Option<(usize, i64)>) {
        let from = self.at[vcpu];
        self.shift(vcpu, to);
        self.write(vcpu, (from, to), None, why, runner_up);
    }

    /// Lets two vCPUs change places and writes the decision down.
    pub(super) fn swap(&mut self, vcpu_: usize, other: usize, why: (Rule, i64), runner_up: Option<(usize, i64)>) {
        let (from, to) = (self.at[vcpu_], self.at[other]);
        self.shift(vcpu_, to);
        self.shift(other, from);
        self.write(vcpu_, (from, to), Some(other), why, runner_up);
    }

    fn write(
        &mut self,
        vcpu_: usize,
        way: (usize, usize),
        swap_with: Option<usize>,
        (rule, score): (Rule, i64),
        runner_up: Option<(usize, i64)>,
    ) {
        let id = |cpu: usize| self.host.cpus().get(cpu).map(|cpu| cpu.id);
        let Some(to) = id(way.1) else { return };
        self.decisions.push(Decision {
            vcpu: vcpu(vcpu_),
            from: id(way.0),
            to,
            swap_with: swap_with.map(vcpu),
            rule,
            score,
            runner_up: runner_up.and_then(|(cpu, score)| id(cpu).map(|cpu| RunnerUp { cpu, score })),
        });
    }

    fn shift(&mut self, vcpu: usize, to: usize) {
        let from = self.at[vcpu];
        if from != usize::MAX {
            self.change(from, |board| {
                board.here[from].retain(|&other| other != vcpu);
                board.load[from] = board.load[from].saturating_sub(board.demand[vcpu]);
                board.in_flight[from] = true;
            });
        }
        self.change(to, |board| {
            board.here[to].push(vcpu);
            board.load[to] = board.load[to].saturating_add(board.demand[vcpu]);
            board.in_flight[to] = true;
        });
        self.at[vcpu] = to;
        self.moved[vcpu] = true;
    }

    /// Changes one CPU and keeps the counts right.
    fn change(&mut self, cpu: usize, change: impl FnOnce(&mut Self)) {
        let at = self.host.cpus()[cpu];
        let before = (self.is_free(cpu), self.is_idle(cpu), self.here[cpu].is_empty());
        let whole = self.whole(at.core);
        change(self);
        let after = (self.is_free(cpu), self.is_idle(cpu), self.here[cpu].is_empty());
        let usable = self.is_usable(cpu);
        self.busy_in_core[at.core] = self.busy_in_core[at.core] + u32::from(!after.0) - u32::from(!before.0);
        self.idle_in_llc[at.llc] = self.idle_in_llc[at.llc] + u32::from(after.1) - u32::from(before.1);
        self.empty = self.empty + usize::from(usable && after.2) - usize::from(usable && before.2);
        let still = self.whole(at.core);
        let count = &mut self.whole_cores_in_llc[at.llc];
        *count = *count + u32::from(still) - u32::from(whole);
    }

    /// Whether a core is idle as a whole and of use.
    fn whole(&self, core: usize) -> bool {
        self.busy_in_core[core] == 0 && self.groups.core_usable[core]
    }
}
