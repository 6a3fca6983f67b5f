// SPDX-License-Identifier: Apache-2.0
//! The one processor of this machine on which an emulator runs that must not run on two.
//!
//! Place in the flow: `qemu` asks when it puts the command together; [`crate::soundness`] says for which emulator. Invariant:
//! only a processor that this process may use itself.

use rustix::thread::{CpuSet, sched_getaffinity};

/// A processor for an emulator that this process starts. Processes get different ones in turn, so that two lab hosts rarely
/// share one. `None` if the kernel does not say what is allowed; the emulator then runs where it likes.
pub(crate) fn choose() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    pick(&allowed, std::process::id() as usize)
}

fn pick(allowed: &[usize], seed: usize) -> Option<usize> {
    allowed.get(seed.checked_rem(allowed.len())?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_take_the_allowed_processors_in_turn() {
        let picked: Vec<_> = (6..10).map(|seed| pick(&[1, 4, 5], seed)).collect();
        assert_eq!(picked, [Some(1), Some(4), Some(5), Some(1)]);
        assert_eq!(pick(&[], 7), None);
    }

    #[test]
    fn this_process_may_run_where_its_emulator_will() {
        let cpu = choose().unwrap();
        assert!(sched_getaffinity(None).unwrap().is_set(cpu), "{cpu}");
    }
}
