// SPDX-License-Identifier: Apache-2.0
//! The kernel's NUMA balancing, before and after seed numa-move-once-per-node: hinting faults, pages that follow, tasks that
//! move or change places (kernel/sched/fair.c, 4.17 and the seed).
//!
//! Every thread has an *area*: its own, or that of its process. Each scan it faults on a sample of the area's pages; pages go
//! to the node of whoever touches them as `should_numa_migrate_memory` says; then the task looks for a better CPU.
//! Invariant: an area keeps its size, and a task moves only where it may run.

use super::state::State;
use super::world::World;
use crate::host::NumaBalancing;

/// Pages of which a scan takes note, standing for all that it marks: what is left is their chance.
const SAMPLE: u64 = 256;
/// Parts of an area that are counted.
const PARTS: u64 = 1 << 20;
/// Full scale of a weight.
const WEIGHT: i64 = 1000;
/// A group's node counts as active from a third of the most active one's faults on (`ACTIVE_NODE_FRACTION`).
const ACTIVE_FRACTION: u64 = 3;
/// Loads of two nodes may differ by this much (`env.imbalance_pct`), in per cent.
const IMBALANCE_PCT: i64 = 112;
/// What a task weighs.
const LOAD: i64 = 1024;

/// Memory that threads share, or a thread's own.
#[derive(Clone, Debug)]
struct Area {
    /// Parts on each node; they add up to [`PARTS`].
    parts: Vec<u64>,
    /// Parts that one scan marks.
    scan: u64,
    /// Hinting faults by node, those of earlier scans halved: of the group, if it is shared.
    faults: Vec<u64>,
    shared: bool,
}

/// All that NUMA balancing knows.
#[derive(Clone, Debug)]
pub(crate) struct Numa {
    areas: Vec<Area>,
    /// Area of each task.
    of: Vec<usize>,
    /// Hinting faults of each task by node.
    faults: Vec<Vec<u64>>,
    /// Whose turn it is in each VM.
    next: Vec<usize>,
    /// Greatest distance between nodes; `None` if all are equally far, so that nearness says nothing.
    farthest: Option<u64>,
}

/// A place for a task that wants to move.
#[derive(Clone, Copy)]
struct Best {
    improvement: i64,
    cpu: usize,
    swap: Option<usize>,
}

/// Load and room of a node.
#[derive(Clone, Copy)]
struct Stats {
    load: i64,
    capacity: i64,
    has_room: bool,
    within_capacity: bool,
}

/// A task on its way from a node to another.
struct Search {
    task: usize,
    from: usize,
    to: usize,
    source: Stats,
    target: Stats,
    gain: i64,
}

impl World {
    /// Lays out memory, if any VM says how much it has, and begins to scan it, if the kernel balances.
    pub(crate) fn start_numa(&mut self) {
        if self.vms.iter().all(|vm| vm.vm.resident_bytes == 0) {
            return;
        }
        let nodes = self.host.nodes.members.len();
        let mut numa = Numa {
            areas: Vec::new(),
            of: vec![0; self.tasks.len()],
            faults: vec![vec![0; nodes]; self.tasks.len()],
            next: vec![0; self.vms.len()],
            farthest: self.farthest(nodes),
        };
        for vm in 0..self.vms.len() {
            let machine = &self.vms[vm].vm;
            let (first, count) = (self.vms[vm].first, machine.vcpus);
            let each = if machine.private { 1 } else { count };
            let bytes = machine.resident_bytes / if machine.private { count as u64 } else { 1 };
            let scan = u128::from(self.params.numa_scan_bytes) * u128::from(PARTS) / u128::from(bytes.max(1));
            let scan = u64::try_from(scan).unwrap_or(PARTS).clamp(1, PARTS);
            for at in (0..count).step_by(each) {
                let homes = (first + at..first + at + each).map(|task| self.tasks[task].home);
                numa.of[first + at..first + at + each].fill(numa.areas.len());
                numa.areas.push(Area::new(homes, nodes, scan, !machine.private));
            }
            if self.params.numa != NumaBalancing::Off {
                self.timers.set(self.numa_slot(vm), self.params.numa_scan_ns / count as u64);
            }
        }
        self.numa = Some(Box::new(numa));
    }

    fn farthest(&self, nodes: usize) -> Option<u64> {
        let pairs = (0..nodes * nodes).filter(|pair| pair / nodes != pair % nodes);
        let far = |pair: usize| u64::from(self.host.topology.distance(pair / nodes, pair % nodes));
        let (least, most) =
            pairs.fold((u64::MAX, 0), |(least, most), pair| (least.min(far(pair)), most.max(far(pair))));
        (least < most).then_some(most)
    }

    /// How much slower than near memory that of `task` is from `node`, in 1024ths of the time it takes.
    pub(crate) fn remoteness(&self, task: usize, node: usize) -> u64 {
        let far = |to: usize| u64::from(self.host.topology.distance(node, to)).max(10) - 10;
        match &self.numa {
            // Latency grows as the SLIT distance does; 10 is local.
            None => far(self.tasks[task].home) * 1024 / 10,
            Some(numa) => {
                let parts = &numa.areas[numa.of[task]].parts;
                let sum: u64 = parts.iter().enumerate().map(|(to, parts)| parts * far(to)).sum();
                sum / 10 * 1024 / PARTS
            }
        }
    }

    /// The next thread of a VM scans a piece of its memory.
    pub(crate) fn numa_scan(&mut self, vm: usize) {
        let Some(mut numa) = self.numa.take() else { return };
        let (first, count) = (self.vms[vm].first, self.vms[vm].vm.vcpus);
        let task = first + numa.next[vm];
        numa.next[vm] = (numa.next[vm] + 1) % count;
        self.timers.set(self.numa_slot(vm), self.now + (self.params.numa_scan_ns / count as u64).max(1));
        if matches!(self.tasks[task].state, State::Running | State::Queued) {
            let here = self.host.nodes.of[self.tasks[task].cpu];
            self.fault(&mut numa, task);
            self.pull_pages(&mut numa, task, here);
            if let Some(best) = self.better_cpu(&numa, task, here) {
                self.numa_move(task, best);
            }
        }
        self.numa = Some(numa);
    }

    /// Hinting faults of one scan.
    fn fault(&mut self, numa: &mut Numa, task: usize) {
        let area = &mut numa.areas[numa.of[task]];
        let mut seen = vec![0_u64; area.parts.len()];
        for _ in 0..SAMPLE {
            let mut at = self.tasks[task].numa_rng.below(PARTS);
            let node = area.parts.iter().position(|&parts| {
                let hit = at < parts;
                at = at.saturating_sub(parts);
                hit
            });
            seen[node.unwrap_or(0)] += 1;
        }
        for (node, seen) in seen.into_iter().enumerate() {
            let mine = &mut numa.faults[task][node];
            let new = *mine / 2 + seen;
            area.faults[node] = area.faults[node] + new - *mine;
            *mine = new;
        }
    }

    /// Pages that the scan marked follow the task to `here`.
    fn pull_pages(&self, numa: &mut Numa, task: usize, here: usize) {
        let threads = self.threads_by_node(task);
        let count: u64 = threads.iter().sum();
        let area = &mut numa.areas[numa.of[task]];
        for node in 0..area.parts.len() {
            let marked = area.parts[node] * area.scan / PARTS;
            // Two touches in a row from one node, or the page stays: of a shared area, as likely as the last one was from here.
            let moved = if area.shared { marked * threads[here] / count.max(1) } else { marked };
            if node != here && (!area.shared || follows(&threads, &area.faults, here, node)) {
                area.parts[node] -= moved;
                area.parts[here] += moved;
            }
        }
    }

    /// How many threads of the task's VM are on each node.
    fn threads_by_node(&self, task: usize) -> Vec<u64> {
        let machine = &self.vms[self.tasks[task].vm];
        let mut threads = vec![0; self.host.nodes.members.len()];
        for one in &self.tasks[machine.first..machine.first + machine.vm.vcpus] {
            threads[self.host.nodes.of[one.cpu]] += 1;
        }
        threads
    }

    /// `task_numa_migrate`: the best CPU for a task that is not where its memory is.
    fn better_cpu(&self, numa: &Numa, task: usize, here: usize) -> Option<Best> {
        let area = &numa.areas[numa.of[task]];
        let counted = if area.shared { &area.faults } else { &numa.faults[task] };
        let preferred = (0..counted.len()).max_by_key(|&node| (counted[node], std::cmp::Reverse(node)))?;
        if preferred == here {
            return None;
        }
        let mut best = self.find_cpu(numa, (task, here, preferred), None);
        let most = counted[preferred];
        let active = counted.iter().filter(|&&faults| faults * ACTIVE_FRACTION > most).count();
        if best.is_none() || (area.shared && active > 1) {
            for node in (0..counted.len()).filter(|&node| node != here && node != preferred) {
                best = self.find_cpu(numa, (task, here, node), best);
            }
        }
        best
    }

    /// `task_numa_find_cpu`: the best CPU of one node, if it is better than `best`.
    fn find_cpu(&self, numa: &Numa, (task, from, to): (usize, usize, usize), best: Option<Best>) -> Option<Best> {
        let gain = self.weight(numa, task, to) - self.weight(numa, task, from);
        if gain < 0 {
            return best;
        }
        let (source, target) = (self.stats(from), self.stats(to));
        // `numa_has_capacity`
        let crowded = source.load * target.capacity * IMBALANCE_PCT > target.load * source.capacity * 100;
        if (source.has_room && !target.has_room) || !crowded {
            return best;
        }
        let search = Search { task, from, to, source, target, gain };
        let may_move = !search.too_uneven(LOAD);
        let mut best = best;
        for &cpu in self.host.nodes.group(to).iter().filter(|&&cpu| self.may_run(task, cpu)) {
            let found = match self.params.numa {
                NumaBalancing::Off => None,
                NumaBalancing::PerCpu => self.compare_per_cpu(numa, &search, cpu, best),
                NumaBalancing::PerNode => self.compare_per_node(numa, &search, (cpu, may_move), best),
            };
            best = found.or(best);
        }
        best
    }

    /// `task_numa_compare` as the seed leaves it.
    fn compare_per_node(
        &self,
        numa: &Numa,
        search: &Search,
        (cpu, may_move): (usize, bool),
        best: Option<Best>,
    ) -> Option<Best> {
        let so_far = best.map_or(0, |best| best.improvement);
        let Some(other) = self.cpus[cpu].current.map(|other| other as usize) else {
            return (may_move || search.gain > so_far).then_some(Best { improvement: search.gain, cpu, swap: None });
        };
        let improvement = self.swap_gain(numa, search, other)?;
        if improvement <= so_far {
            return None;
        }
        if may_move && search.gain > improvement && search.gain > so_far {
            return Some(Best { improvement: search.gain - 1, cpu, swap: None });
        }
        // All tasks weigh the same: a swap changes no load.
        Some(Best { improvement, cpu, swap: Some(other) })
    }

    /// `task_numa_compare` as it was in 4.17.
    fn compare_per_cpu(&self, numa: &Numa, search: &Search, cpu: usize, best: Option<Best>) -> Option<Best> {
        let so_far = best.map_or(0, |best| best.improvement);
        let moves = |improvement| Some(Best { improvement, cpu, swap: None });
        let Some(other) = self.cpus[cpu].current.map(|other| other as usize) else {
            let full = search.source.within_capacity && !search.target.has_room;
            let gains = search.gain > so_far && !full && !search.too_uneven(LOAD);
            return if gains { moves(search.gain) } else { None };
        };
        let improvement = self.swap_gain(numa, search, other)?;
        if improvement <= so_far && search.gain <= so_far {
            return None;
        }
        let alone = self.length(self.tasks[search.task].cpu) == 1 && self.length(cpu) == 1;
        if improvement > so_far && alone {
            return Some(Best { improvement, cpu, swap: Some(other) });
        }
        if search.gain > improvement && search.gain > so_far && !search.too_uneven(LOAD) {
            return moves(search.gain - 1);
        }
        (improvement > so_far && !search.too_uneven(0)).then_some(Best { improvement, cpu, swap: Some(other) })
    }

    /// What changing places with `other` brings, if it may go where the task comes from.
    fn swap_gain(&self, numa: &Numa, search: &Search, other: usize) -> Option<i64> {
        if other == search.task || !self.may_run(other, self.tasks[search.task].cpu) {
            return None;
        }
        let its = self.weight(numa, other, search.from) - self.weight(numa, other, search.to);
        let gain = search.gain + its;
        let shared = |task: usize| numa.areas[numa.of[task]].shared.then_some(numa.of[task]);
        // Some hysteresis against swaps within a group.
        let same_group = shared(other).is_some() && shared(other) == shared(search.task);
        Some(if same_group { gain - gain / 16 } else { gain })
    }

    /// Share of the faults of a task, or of its group, on a node and near it, of [`WEIGHT`].
    fn weight(&self, numa: &Numa, task: usize, node: usize) -> i64 {
        let area = &numa.areas[numa.of[task]];
        let faults = if area.shared { &area.faults } else { &numa.faults[task] };
        let total: u64 = faults.iter().sum();
        let near = |at: usize| match numa.farthest {
            _ if at == node => 1024,
            None => 0,
            // `score_nearby_nodes` of a glueless mesh.
            Some(most) => (most - u64::from(self.host.topology.distance(node, at)).min(most)) * 1024 / (most - 10),
        };
        let score: u64 = faults.iter().enumerate().map(|(at, faults)| faults * near(at)).sum();
        i64::try_from(score / 1024 * WEIGHT.unsigned_abs() / total.max(1)).unwrap_or(0)
    }

    /// `update_numa_stats`.
    fn stats(&self, node: usize) -> Stats {
        let cpus = self.host.nodes.group(node);
        let running: usize = cpus.iter().map(|&cpu| self.length(cpu)).sum();
        let cores = cpus.len() / self.host.cores.group(cpus[0]).len().max(1);
        let count = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        Stats {
            load: count(running) * LOAD,
            capacity: count(cpus.len()) * LOAD,
            has_room: running < cores,
            within_capacity: running <= cores,
        }
    }

    /// Moves a task to a CPU, or lets two change places.
    fn numa_move(&mut self, task: usize, best: Best) {
        let (from, to) = (self.tasks[task].cpu, best.cpu);
        let can_leave = |world: &Self, task: usize| match world.tasks[task].state {
            State::Queued => true,
            State::Running => world.cpus[world.tasks[task].cpu].segment.in_guest(),
            State::Halted | State::Parked => false,
        };
        if !can_leave(self, task) || best.swap.is_some_and(|other| !can_leave(self, other)) {
            return;
        }
        for one in [Some(task), best.swap].into_iter().flatten() {
            let cpu = self.tasks[one].cpu;
            if self.tasks[one].state == State::Running {
                self.leave_guest(cpu);
                self.put_back(cpu, "moved");
            }
        }
        self.migrate(self.task_id(task), from, to);
        if let Some(other) = best.swap {
            self.migrate(self.task_id(other), to, from);
        }
        for cpu in [from, to] {
            if self.cpus[cpu].current.is_none() && !self.is_idle(cpu) {
                self.schedule(cpu, 0);
            }
        }
    }

    pub(crate) fn numa_slot(&self, vm: usize) -> usize {
        self.balance_slot(vm) + self.vms.len()
    }
}

impl Area {
    /// An area that the threads whose homes are given have touched first, each its part.
    fn new(homes: impl ExactSizeIterator<Item = usize>, nodes: usize, scan: u64, shared: bool) -> Self {
        let mut parts = vec![0; nodes];
        let each = PARTS / homes.len().max(1) as u64;
        homes.for_each(|home| parts[home] += each);
        let rest = PARTS - parts.iter().sum::<u64>();
        if let Some(some) = parts.iter_mut().find(|parts| **parts > 0) {
            *some += rest;
        }
        Self { parts, scan, faults: vec![0; nodes], shared }
    }
}

/// `should_numa_migrate_memory` of a group: the node has many more of its threads, or too little memory for them.
fn follows(threads: &[u64], faults: &[u64], here: usize, node: usize) -> bool {
    threads[here] > threads[node] * ACTIVE_FRACTION
        || threads[here] * faults[node] * 3 > threads[node] * faults[here] * 4
}

impl Search {
    /// `load_too_imbalanced`: whether moving `load` leaves the nodes too uneven, and more so than they are.
    fn too_uneven(&self, load: i64) -> bool {
        let gap = |source: i64, target: i64| {
            let (least, most) = (source.min(target), source.max(target));
            most * self.source.capacity * 100 - least * self.target.capacity * IMBALANCE_PCT
        };
        let after = gap(self.source.load - load, self.target.load + load);
        after > 0 && after > gap(self.source.load, self.target.load)
    }
}
