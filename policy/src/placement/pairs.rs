// SPDX-License-Identifier: Apache-2.0
//! Bringing together vCPUs that keep waiting for each other.
//!
//! Which pairs those are, and whether being near helps them, the caller measures (pause handling knows who yields to
//! whom); a pair that is handed in is one for which it does.
//!
//! Invariant: a pair only ever draws nearer (node, then cache, then cluster), and never at the price of sharing a CPU
//! or of a core that somebody else is busy on.

use topology::host::Cpu;

use super::Rule;
use super::board::Board;
use super::search::idle_near;
use super::view::Snapshot;

/// Moves at most `limit` movers nearer to their anchors.
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
        let (from, near) = (board.at[mover], board.at[anchor]);
        let cpus = board.host.cpus();
        if settled && cpus[from].node != cpus[near].node {
            continue;
        }
        let closeness_now = closeness(&cpus[from], &cpus[near]);
        let Some(found) = idle_near(board, near) else { continue };
        let then = closeness(&cpus[found.cpu], &cpus[near]);
        let ranked = !board.rules.asym || board.rank(found.cpu) >= board.rank(from);
        if then > closeness_now && ranked && (!board.rules.whole_core || board.core_is_idle(found.cpu)) {
            board.go(mover, found.cpu, (Rule::Pair, then), Some((from, closeness_now)));
        }
    }
}

/// 3 in one cluster, 2 in one cache, 1 in one node, 0 apart.
fn closeness(a: &Cpu, b: &Cpu) -> i64 {
    if a.cluster == b.cluster {
        3
    } else if a.llc == b.llc {
        2
    } else {
        i64::from(a.node == b.node)
    }
}
