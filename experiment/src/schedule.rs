// SPDX-License-Identifier: Apache-2.0
//! In which order the cells of a plan run.
//!
//! A repetition is a block: every workload at every ratio, in an order by seed, and within each all arms directly after
//! one another, in an order by seed. So whatever the host does meanwhile, slow drift meets all arms alike, and the n-th
//! runs of two arms are a pair. Invariant: every cell occurs once, and a plan is always the same schedule.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::random::Chance;

/// One run of one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Its place in the schedule, from 0.
    pub number: usize,
    /// Index of the workload in the plan.
    pub workload: usize,
    /// Index of the ratio.
    pub load: usize,
    /// Index of the arm.
    pub arm: usize,
    /// Which of the runs of this arm, from 0; warm-ups count on their own.
    pub repetition: u32,
    /// Kept, and not counted.
    pub is_warm_up: bool,
}

/// What a run takes beside its guests' work before any was measured, in milliseconds: a start and an end of the probe guest.
const OVERHEAD_MS: u64 = 60;
/// The same for Linux, which boots: on an emulated host, two guests at a time.
const LINUX_OVERHEAD_MS: u64 = 8000;

/// The cells in their order.
#[must_use]
pub fn schedule(plan: &Plan) -> Vec<Cell> {
    let mut chance = Chance::new(plan.seed);
    let mut cells = Vec::new();
    let warm = (0..plan.warm_up).map(|repetition| (repetition, true));
    for (repetition, is_warm_up) in warm.chain((0..plan.repetitions).map(|repetition| (repetition, false))) {
        let mut settings: Vec<(usize, usize)> = (0..plan.workloads.len())
            .flat_map(|workload| (0..plan.loads.len()).map(move |load| (workload, load)))
            .collect();
        chance.shuffle(&mut settings);
        for (workload, load) in settings {
            let mut arms: Vec<usize> = (0..plan.arms.len()).collect();
            chance.shuffle(&mut arms);
            let cell = |arm| Cell { number: 0, workload, load, arm, repetition, is_warm_up };
            cells.extend(arms.into_iter().map(cell));
        }
    }
    for (number, cell) in cells.iter_mut().enumerate() {
        cell.number = number;
    }
    cells
}

/// How long `cells` runs will take, in milliseconds, if each takes `each_ms`, or what is assumed before any was measured.
#[must_use]
pub fn expected_ms(plan: &Plan, cells: usize, each_ms: Option<u64>) -> u64 {
    let overhead_ms = if plan.is_linux() { LINUX_OVERHEAD_MS } else { OVERHEAD_MS };
    cells as u64 * each_ms.unwrap_or_else(|| u64::from(plan.window_ms) + overhead_ms)
}

/// How a cell is named: workload, ratio, arm, repetition.
#[must_use]
pub fn name(plan: &Plan, cell: &Cell) -> String {
    format!(
        "{} {} {} {}{}",
        plan.workloads[cell.workload].name,
        plan.loads[cell.load].ratio,
        plan.arms[cell.arm].name,
        if cell.is_warm_up { "warm-up " } else { "#" },
        cell.repetition + 1
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn plan(seed: u64, repetitions: u32, warm_up: u32) -> Plan {
        let text = format!(
            "name = \"x\"\nseed = {seed}\nrepetitions = {repetitions}\nwarm_up = {warm_up}\nwindow_ms = 100\n\
             overcommit = [1, 2, 4]\nworkloads = [\"ring\", \"ipi\"]\narms = [\"off\", \"yield\", \"act\"]\n\
             [guests]\ncount = 1\n"
        );
        Plan::parse(&text, &"0-1".parse().unwrap()).unwrap()
    }

    #[test]
    fn another_seed_is_another_order() {
        assert_eq!(schedule(&plan(1, 3, 0)), schedule(&plan(1, 3, 0)));
        assert_ne!(schedule(&plan(1, 3, 0)), schedule(&plan(2, 3, 0)));
    }

    #[test]
    fn a_cell_has_a_name_and_a_time() {
        let plan = plan(1, 2, 1);
        let cells = schedule(&plan);
        assert!(name(&plan, &cells[0]).ends_with("warm-up 1"));
        assert!(name(&plan, cells.last().unwrap()).ends_with("#2"));
        assert_eq!(expected_ms(&plan, 10, None), 1600);
        assert_eq!(expected_ms(&plan, 10, Some(250)), 2500);
    }

    proptest! {
        #[test]
        fn every_cell_occurs_once_and_arms_stand_together(seed in any::<u64>(), repetitions in 1u32..5, warm_up in 0u32..3) {
            // TOML's integers are signed.
            let plan = plan(seed >> 1, repetitions, warm_up);
            let cells = schedule(&plan);
            let distinct: BTreeSet<_> =
                cells.iter().map(|c| (c.workload, c.load, c.arm, c.repetition, c.is_warm_up)).collect();
            prop_assert_eq!(distinct.len(), cells.len());
            prop_assert_eq!(cells.len(), 18 * (repetitions + warm_up) as usize);
            prop_assert!(cells.iter().enumerate().all(|(at, cell)| cell.number == at));
            for block in cells.chunks(3) {
                let same = |c: &Cell| (c.workload, c.load, c.repetition, c.is_warm_up);
                prop_assert!(block.iter().all(|c| same(c) == same(&block[0])));
                prop_assert_eq!(block.iter().map(|c| c.arm).collect::<BTreeSet<_>>().len(), 3);
            }
            let warm = cells.iter().take_while(|c| c.is_warm_up).count();
            prop_assert!(cells[warm..].iter().all(|c| !c.is_warm_up));
        }
    }
}
