// SPDX-License-Identifier: Apache-2.0
//! Bringing together vCPUs that keep waiting for each other, and taking apart those it did not help.
//!
//! Which pairs those are, and whether being near helps them, [`super::Pairing`] finds out.
//!
//! Invariant: a pair only ever draws nearer (node, then cache, then cluster, then CPU) or goes back to where it was, and
//! never at the price of an empty CPU, of a vCPU more on any CPU, or of a core that somebody else is busy on.

use topology::host::Cpu;

use super::Rule;
use super::board::Board;
use super::search::idle_near;
use super::view::{Pair, Snapshot, Step};

/// Moves at most `limit` movers.
///
/// A mover leaves its node only if the snapshot does not say where memory is, and never for a CPU of lower rank: rules
/// `numa` and `asym` would take it back.
pub(super) fn join(board: &mut Board<'_>, limit: usize, snapshot: &Snapshot<'_>, ready: impl Fn(usize) -> bool) {
    let stop = board.decisions.len() + limit;
    let settled = board.rules.numa && !snapshot.memory.is_empty();
    for pair in snapshot.pairs.iter().take(2 * limit) {
        if board.decisions.len() >= stop {
            return;
        }
        let (mover, anchor) = (pair.mover.index(), pair.anchor.index());
        let known = mover.max(anchor) < board.at.len() && mover != anchor;
        if !known || !ready(mover) || !board.may_leave(mover) || !board.may_leave(anchor) {
            continue;
        }
        match pair.step {
            Step::Nearer => drop(nearer(board, (mover, anchor), settled)),
            Step::OneCpu if nearer(board, (mover, anchor), settled) => {}
            Step::OneCpu => one_cpu(board, (mover, anchor), &ready),
            Step::Back { .. } => back(board, *pair, &ready),
        }
    }
}

/// To an idle CPU that is nearer; whether there was one.
fn nearer(board: &mut Board<'_>, (mover, anchor): (usize, usize), settled: bool) -> bool {
    let (from, near) = (board.at[mover], board.at[anchor]);
    let cpus = board.host.cpus();
    if settled && cpus[from].node != cpus[near].node {
        return false;
    }
    let closeness_now = closeness(&cpus[from], &cpus[near]);
    let Some(found) = idle_near(board, near) else { return false };
    let then = closeness(&cpus[found.cpu], &cpus[near]);
    let ranked = !board.rules.asym || board.rank(found.cpu) >= board.rank(from);
    let goes = then > closeness_now && ranked && (!board.rules.whole_core || board.core_is_idle(found.cpu));
    if goes {
        board.go(mover, found.cpu, (Rule::Pair, then), Some((from, closeness_now)));
    }
    goes
}

/// To the anchor's CPU, in exchange for a third vCPU there. Only where every CPU has a vCPU, and within a node.
fn one_cpu(board: &mut Board<'_>, (mover, anchor): (usize, usize), ready: &impl Fn(usize) -> bool) {
    let (from, near) = (board.at[mover], board.at[anchor]);
    let cpus = board.host.cpus();
    if board.empty() > 0 || from == near || cpus[from].node != cpus[near].node {
        return;
    }
    let third =
        board.here(near).iter().copied().find(|&third| third != anchor && ready(third) && board.may_leave(third));
    if let Some(third) = third {
        let now = closeness(&cpus[from], &cpus[near]);
        board.swap(mover, third, (Rule::Pair, closeness(&cpus[near], &cpus[near])), Some((from, now)));
    }
}

/// Back to where it was, if that is still to be had.
fn back(board: &mut Board<'_>, pair: Pair, ready: &impl Fn(usize) -> bool) {
    let Step::Back { to, other } = pair.step else { return };
    let (mover, cpus) = (pair.mover.index(), board.host.cpus());
    let Some(to) = board.host.index_of(to).filter(|to| *to != board.at[mover]) else { return };
    let (from, near) = (board.at[mover], board.at[pair.anchor.index()]);
    let score = |cpu: usize| closeness(&cpus[cpu], &cpus[near]);
    let why = (Rule::Pair, score(to));
    let left = Some((from, score(from)));
    let other = other.map(|other| other.index()).filter(|&other| board.at.get(other) == Some(&to));
    match other.filter(|&other| ready(other) && board.may_leave(other)) {
        Some(other) => board.swap(mover, other, why, left),
        None if board.is_idle(to) => board.go(mover, to, why, left),
        None => {}
    }
}

/// 4 on one CPU, 3 in one cluster, 2 in one cache, 1 in one node, 0 apart.
fn closeness(a: &Cpu, b: &Cpu) -> i64 {
    if a.id == b.id {
        4
    } else if a.cluster == b.cluster {
        3
    } else if a.llc == b.llc {
        2
    } else {
        i64::from(a.node == b.node)
    }
}
