// SPDX-License-Identifier: Apache-2.0
//! What live placement did: counted, and the last moves with their reasons.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use policy::placement::{Decision, PairCounts, Rule};
use topology::id::{HostNode, NodeId};

use crate::host::numa_memory::Located;
use crate::pause::effective::Grant;

/// Moves that are kept for the report.
const KEPT: usize = 256;

/// A move that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Since the guest started.
    pub at: Duration,
    /// What was decided, and why.
    pub decision: Decision,
}

/// Memory of a guest node that followed its vCPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Since the guest started.
    pub at: Duration,
    /// The guest node.
    pub guest: NodeId,
    /// From where.
    pub from: HostNode,
    /// To where.
    pub to: HostNode,
    /// How long the kernel took.
    pub took: Duration,
    /// Where pages were found afterwards.
    pub found: Located,
}

/// What became of live placement.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Looks at the loads.
    pub looks: u64,
    /// Times the host or its claims were found changed.
    pub host_changes: u64,
    /// Changes of affinity that the kernel refused.
    pub refused: u64,
    /// Moves by rule; decisions that changed no thread's CPUs are not counted.
    pub moves: BTreeMap<Rule, u64>,
    /// The last moves, oldest first.
    pub last: VecDeque<Move>,
    /// In which ways the lengths of runqueues were known; filled in at the end.
    pub runqueues: Vec<Grant>,
    /// Pairs that were brought together.
    pub pairs: PairCounts,
    /// Memory that followed its vCPUs, oldest first.
    pub migrations: Vec<Migration>,
    /// Time that looking and deciding took.
    pub spent: Duration,
    /// What should be known of decisions that were made on request.
    pub remarks: Vec<String>,
}

impl Account {
    /// Counts a move.
    pub(super) fn moved(&mut self, at: Duration, decision: Decision) {
        *self.moves.entry(decision.rule).or_insert(0) += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(Move { at, decision });
    }
}

#[cfg(test)]
mod tests {
    use topology::id::{HostCpu, VcpuIndex};

    use super::*;

    #[test]
    fn all_are_counted_and_the_last_are_kept() {
        let decision = |vcpu| Decision {
            vcpu: VcpuIndex(vcpu),
            from: Some(HostCpu(0)),
            to: HostCpu(1),
            swap_with: None,
            rule: Rule::House,
            score: 0,
            runner_up: None,
        };
        let mut account = Account::default();
        (0..300).for_each(|vcpu| account.moved(Duration::ZERO, decision(vcpu)));
        assert_eq!(account.moves[&Rule::House], 300);
        assert_eq!((account.last.len(), account.last[0].decision.vcpu), (KEPT, VcpuIndex(44)));
    }
}
