// SPDX-License-Identifier: Apache-2.0
//! A decision log and the policy as the simulator asks it: what was decided is decided again.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use policy::pause::log::{LogError, Replayed};
use sim::driver;
use sim::engine::Trace;
use sim::scenario::Scenario;

const CROWDED: &str = r#"title = "eight vCPUs on three CPUs, with locks, interrupts and sleep"
duration = "30ms"
host = { cores = 3 }
arm = [{ name = "act", source = "port", after = "5us", action = "policy" }]
[[vm]]
name = "g"
vcpus = 8
locks = { a = "ticket", b = "unfair" }
steps = [{ work = "20us" }, { lock = "a", hold = "~3us" }, { shootdown = true }, { lock = "b", hold = "~2us" }]
"#;

/// The log of a run of [`CROWDED`].
fn log(seed: u64) -> Vec<u8> {
    let scenario = Scenario::parse(CROWDED).unwrap();
    let host = scenario.host(None).unwrap();
    let mut world = scenario.world(&host, &scenario.arms[0], seed, Trace::default()).unwrap();
    world.keep_logs();
    world.run_until(scenario.duration_ns).unwrap();
    world.decision_log(0).unwrap().to_vec()
}

#[test]
fn a_log_gives_the_same_decisions_here_and_where_a_live_one_is_replayed() {
    let log = log(1);
    let here = driver::replay(&log).unwrap();
    assert!(here.mismatch.is_none() && here.decisions > 100, "{here:?}");
    assert_eq!(here, policy::pause::log::replay(&log).unwrap());
}

#[test]
fn the_same_seed_gives_the_same_log_and_keeping_it_changes_nothing() {
    assert_eq!(log(3), log(3));
    assert_ne!(log(3), log(4));
    let scenario = Scenario::parse(CROWDED).unwrap();
    let host = scenario.host(None).unwrap();
    let run = |kept: bool| {
        let mut world = scenario.world(&host, &scenario.arms[0], 3, Trace::default()).unwrap();
        if kept {
            world.keep_logs();
        }
        world.run_until(scenario.duration_ns).unwrap();
        world.outcome()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_decision_that_was_not_made_so_is_named_and_a_damaged_log_refused() {
    let log = log(1);
    let mut found = false;
    // A flipped bit is a damaged record, another fact, or a decision that was not made so.
    for at in (log.len() / 50..log.len() / 10).step_by(log.len() / 400) {
        let mut wrong = log.clone();
        wrong[at] ^= 1;
        if let Ok(Replayed { mismatch: Some(mismatch), .. }) = driver::replay(&wrong) {
            found |= mismatch.logged != mismatch.decided;
        }
    }
    assert!(found);
    assert!(matches!(driver::replay(&log[1..]), Err(LogError::NotALog)));
}
