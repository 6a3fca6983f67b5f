// SPDX-License-Identifier: Apache-2.0
//! One CPU's fair runqueue: EEVDF (kernel/sched/fair.c since 6.6) with equal weights.
//!
//! Whoever has had less than its share is eligible; of the eligible the earliest deadline runs. What yielding does is
//! switchable, for it changed three times (research digest A1).
//!
//! Invariant: a task is on at most one queue, and order among equals is the order in which they came.

/// What `sched_yield` does to the yielder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YieldKind {
    /// Up to 6.5: passed over once (the skip buddy).
    Skip,
    /// 6.6 to 6.18.1: the deadline moves one slice, the lag stays.
    DeadlineOnly,
    /// 6.19, and stable kernels from 6.18.2 and 6.12.63 on: an eligible yielder forfeits its lag (commit 79104becf42b).
    #[default]
    ForfeitLag,
}

/// The scheduler's accounts of one task, in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entity {
    /// Virtual run time.
    pub vruntime: i64,
    /// Virtual time at which its slice should be done.
    pub deadline: i64,
    /// What it was owed when it left its queue.
    pub lag: i64,
}

/// One CPU's queue of tasks that are runnable and not running.
#[derive(Clone, Debug, Default)]
pub struct Runqueue {
    /// Waiting tasks in order of arrival.
    pub waiting: Vec<u32>,
    /// The task that `yield_to` named, if any (`cfs_rq->next`).
    pub buddy: Option<u32>,
    /// The task passed over at the next pick ([`YieldKind::Skip`]).
    pub skip: Option<u32>,
    /// Virtual time of the queue when it was last known, for a queue that has run empty.
    pub idle_vruntime: i64,
}

impl Runqueue {
    /// Mean virtual time of the waiting tasks and of `current`.
    #[must_use]
    pub fn mean(&self, entities: &[Entity], current: Option<u32>) -> i64 {
        let (mut sum, mut count) = (0_i64, 0_i64);
        let base = self.idle_vruntime;
        for &task in self.waiting.iter().chain(&current) {
            sum += entities[task as usize].vruntime - base;
            count += 1;
        }
        if count == 0 { base } else { base + sum.div_euclid(count) }
    }

    /// Puts a task in whose `lag` was set: it starts at the mean, less its lag (`place_entity`).
    pub fn place(&mut self, entities: &mut [Entity], task: u32, current: Option<u32>, slice: u64) {
        let mean = self.mean(entities, current);
        let count = i64::try_from(self.waiting.len() + usize::from(current.is_some())).unwrap_or(i64::MAX);
        let entity = &mut entities[task as usize];
        // Joining moves the mean; the lag is scaled so that it is what it was afterwards.
        let lag = if count == 0 { 0 } else { entity.lag.saturating_mul(count + 1) / count };
        entity.vruntime = mean - lag;
        entity.deadline = entity.vruntime + slice.cast_signed();
        self.waiting.push(task);
    }

    /// Notes what a task that leaves is owed, within two slices either way (`update_entity_lag`).
    pub fn settle_lag(&self, entities: &mut [Entity], task: u32, current: Option<u32>, slice: u64) {
        let limit = 2 * slice.cast_signed();
        let mean = self.mean(entities, current);
        let entity = &mut entities[task as usize];
        entity.lag = (mean - entity.vruntime).clamp(-limit, limit);
    }

    /// Takes a waiting task out.
    pub fn remove(&mut self, task: u32) {
        self.waiting.retain(|&other| other != task);
        self.buddy = self.buddy.filter(|&buddy| buddy != task);
        self.skip = self.skip.filter(|&skip| skip != task);
    }

    /// The task to run next, left in the queue; `None` if nobody waits.
    #[must_use]
    pub fn pick(&self, entities: &[Entity]) -> Option<u32> {
        if self.waiting.len() < 2 {
            return self.waiting.first().copied();
        }
        let mean = self.mean(entities, None);
        let eligible = |task: u32| entities[task as usize].vruntime <= mean;
        if let Some(buddy) = self.buddy.filter(|&buddy| eligible(buddy) && self.waiting.contains(&buddy)) {
            return Some(buddy);
        }
        let skipped = |task: u32| self.skip == Some(task);
        let best = |tasks: &mut dyn Iterator<Item = u32>| tasks.min_by_key(|&task| entities[task as usize].deadline);
        best(&mut self.waiting.iter().copied().filter(|&task| eligible(task) && !skipped(task)))
            .or_else(|| best(&mut self.waiting.iter().copied().filter(|&task| !skipped(task))))
    }

    /// Applies a yield of `task`, which runs here.
    pub fn yields(&mut self, entities: &mut [Entity], task: u32, kind: YieldKind, slice: u64) {
        let mean = self.mean(entities, Some(task));
        let entity = &mut entities[task as usize];
        match kind {
            YieldKind::Skip => self.skip = Some(task),
            YieldKind::DeadlineOnly => entity.deadline += slice.cast_signed(),
            YieldKind::ForfeitLag => {
                if entity.vruntime <= mean {
                    entity.vruntime = entity.deadline;
                }
                entity.deadline += slice.cast_signed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 3_000_000;

    fn queue(vruntimes: &[i64]) -> (Runqueue, Vec<Entity>) {
        let entity = |&vruntime: &i64| Entity { vruntime, deadline: vruntime + SLICE.cast_signed(), lag: 0 };
        let waiting = (0..u32::try_from(vruntimes.len()).unwrap()).collect();
        (Runqueue { waiting, ..Runqueue::default() }, vruntimes.iter().map(entity).collect())
    }

    #[test]
    fn the_earliest_deadline_of_the_eligible_runs_and_a_buddy_before_it() {
        let (mut queue, mut entities) = queue(&[100, 0, 900]);
        assert_eq!(queue.pick(&entities), Some(1));
        entities[0].deadline = 1;
        assert_eq!(queue.pick(&entities), Some(0));
        queue.buddy = Some(1);
        assert_eq!(queue.pick(&entities), Some(1));
        // A buddy that has had more than its share is not run.
        queue.buddy = Some(2);
        assert_eq!(queue.pick(&entities), Some(0));
    }

    /// How often the yielder comes straight back, of ten yields in a row.
    fn comes_back(kind: YieldKind) -> usize {
        let (mut queue, mut entities) = queue(&[0, 2_000_000]);
        (0..10)
            .filter(|_| {
                queue.remove(0);
                queue.yields(&mut entities, 0, kind, SLICE);
                queue.waiting.push(0);
                queue.pick(&entities) == Some(0)
            })
            .count()
    }

    #[test]
    fn a_yield_helps_before_and_after_the_kernels_that_only_move_the_deadline() {
        assert_eq!(comes_back(YieldKind::Skip), 0);
        assert_eq!(comes_back(YieldKind::DeadlineOnly), 10);
        assert_eq!(comes_back(YieldKind::ForfeitLag), 0);
    }

    #[test]
    fn what_a_task_is_owed_survives_sleep_within_bounds() {
        let (mut queue, mut entities) = queue(&[0, 1_000_000]);
        queue.remove(0);
        queue.settle_lag(&mut entities, 0, Some(0), SLICE);
        assert_eq!(entities[0].lag, 500_000);
        queue.place(&mut entities, 0, None, SLICE);
        assert_eq!((entities[0].vruntime, queue.mean(&entities, None)), (0, 500_000));
    }
}
