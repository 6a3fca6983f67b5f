// SPDX-License-Identifier: Apache-2.0
//! A close look at one run: who gave the CPU to whom, and when what was decided.
//!
//! Beside the cells and never counted, for writing every decision down costs time. Invariant: what is drawn of the timeline
//! says from when to when it is; counts are of the whole run.

use serde::{Deserialize, Serialize};

use crate::sample::Ledger;

/// What was done about a pause event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// The CPU was given away: `sched_yield`, or a directed yield.
    Yield,
    /// A parked vCPU was woken, and the spinner goes on.
    Wake,
    /// The spinner was parked.
    Park,
    /// It goes on spinning, for acting costs more than it brings.
    Spin,
    /// Nobody could be helped.
    Bail,
}

impl Deed {
    /// Every deed, in the order in which they are listed.
    pub const ALL: [Self; 5] = [Self::Yield, Self::Wake, Self::Park, Self::Spin, Self::Bail];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yield => "yield",
            Self::Wake => "wake",
            Self::Park => "park",
            Self::Spin => "spin",
            Self::Bail => "bail",
        }
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// When, in microseconds since the first decision of the run.
    pub at_us: f64,
    /// Who spun.
    pub vcpu: u32,
    /// What was done.
    pub deed: Deed,
    /// For whom, if for anybody.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<u32>,
}

/// Most decisions that are kept for the timeline.
pub const MOST_DECISIONS: usize = 1200;

/// What was seen. vCPUs beyond the matrix do not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookRecord {
    /// The run: workload, ratio, arm.
    pub name: String,
    /// How often a vCPU (row) acted for another (column), over the whole run.
    pub given: Vec<Vec<u64>>,
    /// Decisions of each vCPU by deed, in the order of [`Deed::ALL`].
    pub deeds: Vec<[u64; 5]>,
    /// Where each vCPU's time went.
    pub ledger: Vec<Ledger>,
    /// Decisions in the middle of the run, in order: the timeline.
    pub timeline: Vec<Decided>,
}

impl LookRecord {
    /// Of a run's decisions, in order, and the ledgers of its vCPUs. What names another vCPU is left out.
    #[must_use]
    pub fn of(name: &str, ledger: Vec<Ledger>, decisions: &[Decided]) -> Self {
        let vcpus = ledger.len();
        let mut record = Self {
            name: name.to_owned(),
            given: vec![vec![0; vcpus]; vcpus],
            deeds: vec![[0; 5]; vcpus],
            timeline: Vec::new(),
            ledger,
        };
        for decided in decisions {
            let Some(deeds) = record.deeds.get_mut(decided.vcpu as usize) else { continue };
            let place = Deed::ALL.iter().position(|deed| *deed == decided.deed).unwrap_or(0);
            deeds[place] += 1;
            let row = record.given.get_mut(decided.vcpu as usize);
            let cell = row.zip(decided.target).and_then(|(row, target)| row.get_mut(target as usize));
            if let Some(count) = cell {
                *count += 1;
            }
        }
        let first = decisions.len().saturating_sub(MOST_DECISIONS) / 2;
        let middle = decisions.iter().skip(first).take(MOST_DECISIONS);
        record.timeline = middle.filter(|decided| (decided.vcpu as usize) < vcpus).copied().collect();
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_counted_by_source_and_target() {
        let decided = |vcpu, deed, target| Decided { at_us: 1.0, vcpu, deed, target };
        let decisions = [
            decided(0, Deed::Yield, Some(1)),
            decided(0, Deed::Park, Some(1)),
            decided(1, Deed::Bail, None),
            decided(1, Deed::Yield, Some(7)),
            decided(9, Deed::Spin, None),
        ];
        let record = LookRecord::of("x", vec![Ledger::default(); 2], &decisions);
        assert_eq!(record.given, [vec![0, 2], vec![0, 0]]);
        assert_eq!(record.deeds, [[1, 0, 1, 0, 0], [1, 0, 0, 0, 1]]);
        assert_eq!(record.timeline.len(), 4, "a vCPU that there is not is left out");
    }

    #[test]
    fn the_timeline_is_from_the_middle() {
        let decided = |at: u32| Decided { at_us: f64::from(at), vcpu: 0, deed: Deed::Spin, target: None };
        let many: Vec<Decided> = (0..5000).map(decided).collect();
        let record = LookRecord::of("x", vec![Ledger::default()], &many);
        assert_eq!(record.timeline.len(), MOST_DECISIONS);
        assert!((record.timeline[0].at_us - 1900.0).abs() < 1e-9);
        assert_eq!(record.deeds[0].iter().sum::<u64>(), 5000);
    }
}
