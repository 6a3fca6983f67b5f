// SPDX-License-Identifier: Apache-2.0
//! Asym packing: work goes to the CPUs that the machine prefers; a busy CPU looks at the busiest instead.
//!
//! From seed asym-packing (Linux commit 1f621e028baf) with ranks in place of CPU numbers (afe06efdf07c):
//!
//! - an idle CPU pulls from the least preferred busy CPU that ranks below it, within its node;
//! - a CPU counts as idle only if its whole core rests; a whole idle core also takes from a core with several busy
//!   threads, if it ranks no lower;
//! - a busy CPU ignores ranks: only the difference of loads moves something there ([`relieve`]);
//! - equal ranks switch the rule off, and the only task of a better CPU is never taken, not by those that go by loads
//!   either, where the length of its runqueue is known ([`Board::takes_the_only_task`]).
//!
//! Properties: *a busy CPU never uses the asym rule*; *equal scores never move*.

use std::cmp::Reverse;

use super::Rule;
use super::board::{Board, IDLE_LOAD};
use super::search::idle_near;

/// A vCPU that waits for less than this part of the time, in 1024ths, is not in need: a sixteenth.
const NEED: u32 = IDLE_LOAD / 2;

/// Idle CPUs pull from those that rank below them. `pulls` says which CPUs may look now.
pub(super) fn pull(board: &mut Board<'_>, limit: usize, pulls: &[bool], ready: impl Fn(usize) -> bool) {
    let stop = board.decisions.len() + limit;
    for node in 0..board.host.nodes().len() {
        let cpus = board.node_cpus(node);
        let mut idle: Vec<usize> = cpus.iter().copied().filter(|&cpu| pulls[cpu] && rests(board, cpu)).collect();
        idle.sort_by_key(|&cpu| (Reverse(board.rank(cpu)), cpu));
        let mut busy: Vec<(usize, usize)> =
            cpus.iter().filter_map(|&cpu| busiest_vcpu(board, cpu, &ready).map(|vcpu| (cpu, vcpu))).collect();
        busy.sort_by_key(|&(cpu, _)| (board.rank(cpu), cpu));
        let mut sources = busy.into_iter().peekable();
        for (place, &to) in idle.iter().enumerate() {
            let Some(&(from, vcpu)) = sources.peek() else { break };
            if board.decisions.len() >= stop || board.rank(to) <= board.rank(from) {
                break;
            }
            if board.in_flight(to) || !rests(board, to) {
                continue;
            }
            let second = idle.get(place + 1).map(|&cpu| (cpu, i64::from(board.rank(cpu))));
            let why = (Rule::Asym, i64::from(board.rank(to)));
            match board.here(to).first() {
                Some(&sleeper) => board.swap(vcpu, sleeper, why, second),
                None => board.go(vcpu, to, why, second),
            }
            sources.next();
        }
    }
}

/// Whether a vCPU could come: the core rests, and the CPU is free or has one vCPU that sleeps and can change places.
fn rests(board: &Board<'_>, cpu: usize) -> bool {
    let free = match board.here(cpu) {
        [] => board.is_idle(cpu),
        [sleeper] => board.is_usable(cpu) && board.is_calm(cpu) && board.may_leave(*sleeper),
        _ => false,
    };
    free && if board.rules.whole_core { board.core_rests(cpu) } else { board.is_calm(cpu) }
}

/// The vCPU of a CPU that wants most, if it wants a CPU at all and may move.
fn busiest_vcpu(board: &Board<'_>, cpu: usize, ready: impl Fn(usize) -> bool) -> Option<usize> {
    let here = board.here(cpu).iter().copied();
    let vcpu = here.max_by_key(|&vcpu| (board.demand[vcpu], Reverse(vcpu)))?;
    (board.demand[vcpu] >= IDLE_LOAD && board.may_leave(vcpu) && ready(vcpu)).then_some(vcpu)
}

/// Cores with several busy threads give one to a core that is idle as a whole.
pub(super) fn unshare_cores(board: &mut Board<'_>, limit: usize, pulls: &[bool], ready: impl Fn(usize) -> bool) {
    let stop = board.decisions.len() + limit;
    let mut looked = 0;
    for from in 0..board.host.cpus().len() {
        if board.decisions.len() >= stop || looked >= 2 * limit {
            break;
        }
        let shared = board.core_busy(from) > 1 && board.whole_cores_in_llc[board.host.cpus()[from].llc] > 0;
        let Some(vcpu) = busiest_vcpu(board, from, &ready).filter(|_| shared && !board.core_rests(from)) else {
            continue;
        };
        let threads = i64::from(board.core_busy(from));
        looked += 1;
        if let Some(found) = idle_near(board, from)
            && pulls[found.cpu]
            && board.core_is_idle(found.cpu)
            && board.rank(found.cpu) >= board.rank(from)
        {
            board.go(vcpu, found.cpu, (Rule::WholeCore, -1), Some((from, -threads)));
        }
    }
}

/// vCPUs that wait, those that wait longest first, at most `most` of them.
fn in_need(board: &Board<'_>, most: usize, ready: impl Fn(usize) -> bool) -> Vec<usize> {
    // Where others use so little that the CPU would count as idle, it is left only by those who wait as long as that: else
    // a vCPU would be sent to idle CPUs of which none is better.
    let much = |vcpu: usize| board.waiting[vcpu] >= IDLE_LOAD || board.is_disturbed(board.at[vcpu]);
    let need = |vcpu: &usize| board.waiting[*vcpu] >= NEED && board.may_leave(*vcpu) && much(*vcpu) && ready(*vcpu);
    let mut vcpus: Vec<usize> = (0..board.at.len()).filter(need).collect();
    vcpus.sort_by_key(|&vcpu| (Reverse(board.waiting[vcpu]), vcpu));
    vcpus.truncate(most);
    vcpus
}

/// vCPUs that wait go to an idle CPU: of the cluster, of the cache, of the node and, if they wait for more than a
/// quarter of the time, of any node.
pub(super) fn wake(board: &mut Board<'_>, limit: usize, ready: impl Fn(usize) -> bool) {
    let stop = board.decisions.len() + limit;
    for vcpu in in_need(board, 2 * limit, ready) {
        if board.decisions.len() >= stop {
            break;
        }
        let from = board.at[vcpu];
        if !board.may_leave(vcpu) {
            continue;
        }
        let waited = i64::from(board.waiting[vcpu]);
        let found = match idle_near(board, from) {
            Some(found) => Some((found.cpu, found.rule, found.runner_up)),
            None => idle_elsewhere(board, from, board.waiting[vcpu] >= super::view::FULL / 4)
                .map(|cpu| (cpu, Rule::Busiest, None)),
        };
        if let Some((to, rule, second)) = found.filter(|(to, ..)| !board.takes_the_only_task(vcpu, *to)) {
            board.go(vcpu, to, (rule, waited), second.map(|cpu| (cpu, waited)));
        }
    }
}

/// An idle CPU outside the cache of `from`: in its node, or (if `far`) in the nearest node that has one.
pub(super) fn idle_elsewhere(board: &mut Board<'_>, from: usize, far: bool) -> Option<usize> {
    let node = board.node_of(from);
    let others = board.nearest(node).iter().copied().filter(|_| far);
    let nodes: Vec<usize> = std::iter::once(node).chain(others).collect();
    for node in nodes {
        for llc in 0..board.host.llcs().len() {
            let other = llc != board.host.cpus()[from].llc;
            if other && board.host.llcs()[llc].parent == node && board.idle_in_llc[llc] > 0 {
                let first = board.llcs(llc)[0];
                if let Some(found) = idle_near(board, first) {
                    return Some(found.cpu);
                }
            }
        }
    }
    None
}

/// vCPUs that wait, where nothing is idle, go from the busiest CPUs of a node to the least busy ones, if that brings
/// the two loads nearer together.
pub(super) fn relieve(board: &mut Board<'_>, limit: usize, pulls: &[bool], ready: impl Fn(usize) -> bool) {
    let stop = board.decisions.len() + limit;
    let needy = in_need(board, board.at.len(), ready);
    for node in 0..board.host.nodes().len() {
        let here = |vcpu: &usize| board.node_of(board.at[*vcpu]) == node;
        let mut sources: Vec<usize> = needy.iter().copied().filter(here).collect();
        if sources.is_empty() {
            continue;
        }
        sources.sort_by_key(|&vcpu| (Reverse(board.load(board.at[vcpu])), Reverse(board.waiting[vcpu]), vcpu));
        let mut calm: Vec<usize> =
            board.node_cpus(node).iter().copied().filter(|&cpu| board.is_usable(cpu) && pulls[cpu]).collect();
        calm.sort_by_key(|&cpu| (board.load(cpu), cpu));
        for vcpu in sources.into_iter().take(2 * limit) {
            if board.decisions.len() >= stop {
                return;
            }
            relieve_one(board, vcpu, &calm);
        }
    }
}

fn relieve_one(board: &mut Board<'_>, vcpu: usize, calm: &[usize]) {
    if !board.may_leave(vcpu) {
        return;
    }
    let load = i64::from(board.load(board.at[vcpu]));
    let gain = |board: &Board<'_>, cpu: usize| load - i64::from(board.load(cpu)) - i64::from(board.demand[vcpu]);
    let fits = |board: &Board<'_>, cpu: &usize| {
        !board.in_flight(*cpu) && board.house_allows(vcpu, *cpu) && !board.takes_the_only_task(vcpu, *cpu)
    };
    // Ascending by load: once nothing is gained, nothing further will be.
    let mut better = calm.iter().copied().take_while(|&cpu| gain(board, cpu) > 0).filter(|cpu| fits(board, cpu));
    let Some(to) = better.next() else { return };
    let second = better.next().map(|cpu| (cpu, gain(board, cpu)));
    let score = gain(board, to);
    board.go(vcpu, to, (Rule::Busiest, score), second);
}
