// SPDX-License-Identifier: Apache-2.0
//! NUMA: a vCPU goes where its guest node's memory is, by a move or by changing places.
//!
//! From seed numa-move-once-per-node, in today's form (`task_numa_compare`, kernel/sched/fair.c, 6.17). The weight of
//! guest node g on host node n is the share of g's memory on n, and of what is nearer to n than the farthest node is
//! (`score_nearby_nodes`), on a scale to 999. The improvement of a move is the difference of two weights, that of a
//! swap the sum of two differences: at most 1998.
//!
//! ```text
//! per destination node, once:  may_move = an idle CPU is there, or the loads do not get more unequal
//!     idle CPU there and may_move: take it (a whole idle core if there is one) and look no further
//! per CPU of the node:
//!     its vCPU is in the same guest node: imp = 0, since what one gains the other loses: no swap
//!     else imp = mine + its; + imp/8 if it comes home; - imp/16 if it is at home now
//!     may_move and mine > imp and mine > best: a move of score mine - 1, so that an idle CPU wins a tie
//!     imp >= 30 and imp > best + 15 and the loads do not get more unequal: a swap
//! ```
//! Where this differs from the kernel: a plain move needs the improvement of 30 too, because here it costs a system
//! call; and there is no allowance for imbalance between nodes (`adjust_numa_imbalance`), since nothing here would
//! balance between nodes and move it back.
//!
//! Properties: *the move decision is taken once per node*; at most one move or swap per pair of nodes and pass; *equal
//! scores never move*.

use std::cmp::Reverse;

use topology::host::HostTopology;

use super::board::Board;
use super::view::FULL;
use super::{Guest, Rule};

/// Improvements below this are noise (`SMALLIMP`, kernel/sched/fair.c).
pub(super) const SMALL_IMPROVEMENT: i64 = 30;
/// All of the memory is here.
const ALL: u128 = 999;

/// Weight of every guest node on every host node.
pub(super) struct Weights {
    of: Vec<Vec<i64>>,
    preferred: Vec<usize>,
}

impl Weights {
    /// `memory` holds, for every guest node, bytes per host node; a wish counts as all memory there.
    pub(super) fn new(host: &HostTopology, guest: &Guest, memory: &[Vec<u64>]) -> Self {
        let nodes = host.nodes().len();
        let farthest = (0..nodes * nodes).map(|pair| host.distance(pair / nodes, pair % nodes)).max().unwrap_or(10);
        let row = |(index, node): (usize, &super::GuestNode)| {
            let wish = node.host_node.and_then(|id| host.node_index(id)).map(|home| (home, 1));
            let known = memory.get(index).map_or(&[][..], Vec::as_slice).iter().copied().enumerate();
            let bytes: Vec<(usize, u64)> = match wish {
                Some(wish) => vec![wish],
                None => known.filter(|(at, bytes)| *at < nodes && *bytes > 0).collect(),
            };
            (0..nodes).map(|at| weight(host, &bytes, at, farthest)).collect::<Vec<i64>>()
        };
        let of: Vec<Vec<i64>> = guest.nodes.iter().enumerate().map(row).collect();
        // The first of equals.
        let best = |row: &Vec<i64>| (0..row.len()).max_by_key(|&node| (row[node], Reverse(node))).unwrap_or(0);
        Self { preferred: of.iter().map(best).collect(), of }
    }

    pub(super) fn get(&self, guest_node: usize, node: usize) -> i64 {
        self.of.get(guest_node).and_then(|row| row.get(node)).copied().unwrap_or(0)
    }

    /// The host node with the highest weight for a guest node.
    pub(super) fn preferred(&self, guest_node: usize) -> usize {
        self.preferred.get(guest_node).copied().unwrap_or(0)
    }
}

fn weight(host: &HostTopology, bytes: &[(usize, u64)], at: usize, farthest: u8) -> i64 {
    let total: u128 = bytes.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let span = u128::from(farthest.saturating_sub(10));
    if total == 0 || span == 0 {
        return 0;
    }
    let near = |&(node, bytes): &(usize, u64)| u128::from(bytes) * u128::from(farthest - host.distance(at, node));
    let sum: u128 = bytes.iter().map(near).sum();
    i64::try_from(sum * ALL / (total * span)).unwrap_or(0)
}

/// The best so far, and the one before it.
#[derive(Clone, Copy)]
struct Best {
    improvement: i64,
    cpu: usize,
    swap: Option<usize>,
}

/// The rule, over one board.
pub(super) struct NumaRule<'a> {
    pub(super) guest: &'a Guest,
    pub(super) weights: &'a Weights,
    loads: Vec<u64>,
    capacities: Vec<u64>,
    idle: Vec<u32>,
}

impl<'a> NumaRule<'a> {
    pub(super) fn new(board: &Board<'_>, guest: &'a Guest, weights: &'a Weights) -> Self {
        let nodes = board.host.nodes().len();
        let mut rule = Self { guest, weights, loads: vec![0; nodes], capacities: vec![0; nodes], idle: vec![0; nodes] };
        for cpu in 0..board.host.cpus().len() {
            let node = board.node_of(cpu);
            rule.loads[node] += u64::from(board.load(cpu));
            rule.capacities[node] += u64::from(board.is_usable(cpu)) * u64::from(FULL);
            rule.idle[node] += u32::from(board.is_idle(cpu));
        }
        rule
    }

    /// What a vCPU would gain on its preferred node.
    fn gain(&self, board: &Board<'_>, vcpu: usize) -> i64 {
        let group = self.guest.vcpus[vcpu].node;
        let here = self.weights.get(group, board.node_of(board.at[vcpu]));
        self.weights.get(group, self.weights.preferred(group)) - here
    }

    /// Moves at most `limit` of the vCPUs for which `ready` holds, those that gain most first.
    pub(super) fn run(&mut self, board: &mut Board<'_>, limit: usize, ready: impl Fn(usize) -> bool) {
        let eligible = |vcpu: &usize| board.may_leave(*vcpu) && ready(*vcpu);
        let mut gains: Vec<(i64, usize)> =
            (0..board.at.len()).filter(eligible).map(|vcpu| (self.gain(board, vcpu), vcpu)).collect();
        gains.retain(|(gain, _)| *gain >= SMALL_IMPROVEMENT);
        gains.sort_by_key(|&(gain, vcpu)| (Reverse(gain), vcpu));
        let stop = board.decisions.len() + limit;
        for (_, vcpu) in gains.into_iter().take(2 * limit) {
            if board.decisions.len() >= stop {
                break;
            }
            if board.may_leave(vcpu) {
                self.one(board, vcpu);
            }
        }
    }

    /// Tries the preferred node, and only if it has no place the others that are better than this one.
    fn one(&mut self, board: &mut Board<'_>, vcpu: usize) {
        let group = self.guest.vcpus[vcpu].node;
        let from = board.node_of(board.at[vcpu]);
        let here = self.weights.get(group, from);
        let worth = |node: usize| self.weights.get(group, node) - here;
        let mut nodes: Vec<usize> = (0..self.loads.len()).filter(|&node| worth(node) >= SMALL_IMPROVEMENT).collect();
        nodes.sort_by_key(|&node| (Reverse(worth(node)), node));
        for node in nodes {
            if node == from || board.node_pair_used(from, node) {
                continue;
            }
            let (best, second) = self.look(board, vcpu, (from, node));
            if let Some(best) = best {
                self.take(board, vcpu, (from, node), best, second);
                return;
            }
        }
    }

    fn look(&self, board: &mut Board<'_>, vcpu: usize, way: (usize, usize)) -> (Option<Best>, Option<Best>) {
        let (from, to) = way;
        let group = self.guest.vcpus[vcpu].node;
        let mine = self.weights.get(group, to) - self.weights.get(group, from);
        board.stats.numa_decisions += 1;
        let may_move = self.idle[to] > 0 || !self.too_unequal(way, u64::from(board.demand[vcpu]), 0);
        if self.idle[to] > 0
            && let Some(cpu) = idle_of(board, to)
        {
            return (Some(Best { improvement: mine, cpu, swap: None }), None);
        }
        let (mut best, mut second): (Option<Best>, Option<Best>) = (None, None);
        for &cpu in board.node_cpus(to) {
            if !board.is_usable(cpu) || board.in_flight(cpu) {
                continue;
            }
            let Some(&other) = board.here(cpu).first() else { continue };
            let reached = best.map_or(0, |best| best.improvement);
            let improvement = self.swap_improvement(way, mine, group, self.guest.vcpus[other].node);
            let candidate = if may_move && mine > improvement && mine > reached && board.house_allows(vcpu, cpu) {
                Best { improvement: mine - 1, cpu, swap: None }
            } else {
                let (out, back) = (u64::from(board.demand[vcpu]), u64::from(board.demand[other]));
                let small = improvement < SMALL_IMPROVEMENT || improvement <= reached + SMALL_IMPROVEMENT / 2;
                if small || (out != back && self.too_unequal(way, out, back)) || !board.may_leave(other) {
                    continue;
                }
                Best { improvement, cpu, swap: Some(other) }
            };
            second = best;
            best = Some(candidate);
        }
        (best, second)
    }

    /// Improvement if a vCPU of `group` and one of `other` change places along `way`, given the first one's own.
    fn swap_improvement(&self, way: (usize, usize), mine: i64, group: usize, other: usize) -> i64 {
        let (from, to) = way;
        let theirs = self.weights.get(other, from) - self.weights.get(other, to);
        let sum = mine + theirs;
        if group == other {
            return sum - sum / 16;
        }
        let home = self.weights.preferred(other);
        if home == from {
            sum + sum / 8
        } else if home == to {
            sum - sum / 16
        } else {
            sum
        }
    }

    /// Whether `out` going and `back` coming makes the two nodes' loads more unequal, weighted by capacity
    /// (`load_too_imbalanced`).
    fn too_unequal(&self, (from, to): (usize, usize), out: u64, back: u64) -> bool {
        let wide = |load: u64, node: usize| u128::from(load) * u128::from(self.capacities[node]);
        let unequal = |src: u64, dst: u64| wide(dst, from).abs_diff(wide(src, to));
        let (src, dst) = (self.loads[from], self.loads[to]);
        let moved = unequal(src.saturating_sub(out) + back, (dst + out).saturating_sub(back));
        moved > unequal(src, dst)
    }

    fn take(&mut self, board: &mut Board<'_>, vcpu: usize, way: (usize, usize), best: Best, second: Option<Best>) {
        let (from, to) = way;
        let out = u64::from(board.demand[vcpu]);
        let back = best.swap.map_or(0, |other| u64::from(board.demand[other]));
        self.loads[from] = self.loads[from].saturating_sub(out) + back;
        self.loads[to] = (self.loads[to] + out).saturating_sub(back);
        board.use_node_pair(from, to);
        let why = (Rule::Numa, best.improvement);
        let runner_up = second.map(|second| (second.cpu, second.improvement));
        match best.swap {
            Some(other) => board.swap(vcpu, other, why, runner_up),
            None => {
                self.idle[to] = self.idle[to].saturating_sub(1);
                board.go(vcpu, best.cpu, why, runner_up);
            }
        }
    }
}

/// An idle CPU of a node, of a whole idle core if there is one.
fn idle_of(board: &Board<'_>, node: usize) -> Option<usize> {
    let mut idle = board.node_cpus(node).iter().copied().filter(|&cpu| board.is_idle(cpu));
    let first = idle.next()?;
    if !board.rules.whole_core || board.core_is_idle(first) {
        return Some(first);
    }
    idle.find(|&cpu| board.core_is_idle(cpu)).or(Some(first))
}
