// SPDX-License-Identifier: Apache-2.0
//! Looking for an idle CPU: the cluster first, then the rest of the last-level cache, within a budget.
//!
//! From seed cluster-scan, and from `SIS_UTIL` (Linux commit 70fb5ccf2ebb) for the budget:
//! `y = 1024 - x² · pct² / (10000 · 1024)`, `budget = cpus · y / 1024`, with x the cache's utilisation in 1024ths and
//! pct the domain's imbalance of 117.
//!
//! The kernel stops scanning altogether once the budget is used up at about 85 % utilisation; the seed shows what such
//! a cliff costs (-33.5 % of tbench at 64 threads). Here the budget never falls below one CPU.
//!
//! Properties: *the scan budget shrinks monotonically and without a jump*; on a host with SMT a whole idle core is found
//! regardless of the budget, because the board knows whether there is one (as `test_idle_cores` does).

use super::Rule;
use super::board::Board;
use super::view::FULL;

/// Imbalance in percent at which a domain counts as unbalanced (`imbalance_pct` of `sd_init`).
const IMBALANCE_PCT: u64 = 117;

/// CPUs to look at in a cache of `cpus` CPUs whose mean utilisation is `utilisation` 1024ths: from all to one.
#[must_use]
pub fn scan_budget(cpus: u32, utilisation: u32) -> u32 {
    let full = u64::from(FULL);
    let x = u64::from(utilisation.min(FULL));
    let spent = x * x * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * full);
    let scan = u64::from(cpus) * full.saturating_sub(spent) / full;
    u32::try_from(scan).unwrap_or(cpus).min(cpus).max(1)
}

/// An idle CPU, and the next best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) cpu: usize,
    pub(super) rule: Rule,
    pub(super) runner_up: Option<usize>,
}

/// Looks for an idle CPU near `target`, which is a dense index and need not be usable.
///
/// Order: whole idle cores of the cluster, of the cache; then idle threads of the cluster, of the cache. Each is
/// scanned from `target` onwards, wrapping.
pub(super) fn idle_near(board: &mut Board<'_>, target: usize) -> Option<Found> {
    if board.is_idle(target) && (!board.rules.whole_core || board.core_is_idle(target)) {
        return Some(Found { cpu: target, rule: Rule::Cluster, runner_up: None });
    }
    let at = board.host.cpus()[target];
    if board.idle_in_llc[at.llc] == 0 {
        return None;
    }
    let host = board.host;
    let cluster: &[usize] = if board.rules.cluster { board.clusters(at.cluster) } else { &[] };
    let llc = board.llcs(at.llc);
    let total = u32::try_from(llc.len()).unwrap_or(u32::MAX);
    let limited = board.rules.scan_budget;
    let budget = if limited { scan_budget(total, board.utilisation_of_llc(at.llc)) } else { total };
    // A whole idle core is worth a full scan; a thread is only worth the budget.
    let seek_core = board.rules.whole_core && host.has_smt() && board.whole_cores_in_llc[at.llc] > 0;
    let mut scan = Scan { board, whole: None, thread: None, second: None, looked: 0 };
    let inside = from(cluster, target).map(|cpu| (cpu, Rule::Cluster));
    let outside = from(llc, target).filter(|&cpu| cluster.is_empty() || host.cpus()[cpu].cluster != at.cluster);
    for (cpu, rule) in inside.chain(outside.map(|cpu| (cpu, Rule::Llc))) {
        if scan.done(seek_core) || (scan.looked >= budget && !seek_core) {
            break;
        }
        scan.look(cpu, rule);
    }
    let (looked, found) = (scan.looked, scan.result());
    board.stats.cpus_scanned += u64::from(looked);
    found
}

/// A group's CPUs in ascending order, starting after `target` and wrapping: `target` comes last.
fn from(group: &[usize], target: usize) -> impl Iterator<Item = usize> + '_ {
    let start = group.partition_point(|&cpu| cpu <= target);
    group[start..].iter().chain(&group[..start]).copied()
}

struct Scan<'b, 'h> {
    board: &'b Board<'h>,
    whole: Option<(usize, Rule)>,
    thread: Option<(usize, Rule)>,
    second: Option<usize>,
    looked: u32,
}

impl Scan<'_, '_> {
    fn look(&mut self, cpu: usize, rule: Rule) {
        self.looked += 1;
        if !self.board.is_idle(cpu) {
            return;
        }
        let whole = !self.board.rules.whole_core || self.board.core_is_idle(cpu);
        let slot = if whole { &mut self.whole } else { &mut self.thread };
        if slot.is_none() {
            *slot = Some((cpu, rule));
        } else if self.second.is_none() {
            self.second = Some(cpu);
        }
    }

    /// Whether more looking cannot change the choice.
    fn done(&self, seek_core: bool) -> bool {
        self.whole.is_some() || (!seek_core && self.thread.is_some())
    }

    fn result(&self) -> Option<Found> {
        let (first, other) = if self.whole.is_some() { (self.whole, self.thread) } else { (self.thread, None) };
        let (cpu, rule) = first?;
        Some(Found { cpu, rule, runner_up: other.map(|(cpu, _)| cpu).or(self.second) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn budget_follows_the_published_table() {
        // research A5, rows of a 112-CPU and a 16-CPU cache; where the kernel has 0 or 1, one CPU is looked at.
        let percent = [0, 5, 15, 25, 35, 45, 55, 65, 75, 85, 86];
        let large = [112, 111, 108, 102, 93, 81, 65, 47, 25, 1, 1];
        let small = [16, 15, 15, 14, 13, 11, 9, 6, 3, 1, 1];
        for ((percent, large), small) in percent.into_iter().zip(large).zip(small) {
            let utilisation = percent * FULL / 100;
            let got = (scan_budget(112, utilisation), scan_budget(16, utilisation));
            assert!(got.0.abs_diff(large) <= 1 && got.1.abs_diff(small) <= 1, "{percent} %: {got:?}");
        }
    }

    proptest! {
        #[test]
        fn the_scan_budget_shrinks_monotonically_and_without_a_jump(cpus in 1u32..513, utilisation in 0u32..1024) {
            let (now, busier) = (scan_budget(cpus, utilisation), scan_budget(cpus, utilisation + 1));
            prop_assert!(busier <= now && busier >= 1);
            // The steepest slope of y is 2.4 per 1024th, just before the budget is down to one CPU.
            prop_assert!(now - busier <= 1 + cpus * 3 / 1024, "{} to {}", now, busier);
        }
    }
}
