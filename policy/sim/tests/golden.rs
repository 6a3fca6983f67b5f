// SPDX-License-Identifier: Apache-2.0
//! Traces of small scenarios as text: what the model does, event by event. Whatever changes the model shows here.
//!
//! The arms do what they do without asking the policy, so that a change of the policy changes no trace.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use sim::engine::Trace;
use sim::scenario::Scenario;
use sim::timeline;

/// The trace of the first arm of a scenario with seed 1.
fn trace(text: &str) -> String {
    let scenario = Scenario::parse(text).unwrap();
    let host = scenario.host(None).unwrap();
    let mut world = scenario.world(&host, &scenario.arms[0], 1, Trace::new(60)).unwrap();
    world.run_until(scenario.duration_ns).unwrap();
    timeline::text(world.trace(), &world.task_names())
}

#[test]
fn a_preempted_owner_lets_the_others_spin_until_the_tick() {
    insta::assert_snapshot!(trace(
        r#"title = "three vCPUs, one CPU, a ticket lock, nobody looks"
duration = "30ms"
host = { cores = 1 }
arm = [{ name = "off" }]
[[vm]]
name = "g"
vcpus = 3
locks = { l = "ticket" }
steps = [{ work = "=1ms" }, { lock = "l", hold = "=4ms" }]
"#
    ));
}

#[test]
fn the_kernel_yields_to_the_preempted_owner() {
    insta::assert_snapshot!(trace(
        r#"title = "the same with hardware pause exits"
duration = "30ms"
host = { cores = 1 }
arm = [{ name = "kernel", kernel = true }]
[[vm]]
name = "g"
vcpus = 3
locks = { l = "ticket" }
steps = [{ work = "=1ms" }, { lock = "l", hold = "=4ms" }]
"#
    ));
}

#[test]
fn a_parked_spinner_is_woken_by_the_one_that_names_it() {
    insta::assert_snapshot!(trace(
        r#"title = "a ring on one CPU, parking"
duration = "2ms"
host = { cores = 1 }
arm = [{ name = "park", source = "port", after = "10us", action = "park" }]
[[vm]]
name = "g"
vcpus = 3
locks = { l = "ring" }
steps = [{ lock = "l", hold = "=20us" }]
"#
    ));
}

#[test]
fn an_idle_cpu_pulls_what_waits_and_a_wake_up_finds_an_idle_one() {
    insta::assert_snapshot!(trace(
        r#"title = "five sleepers on two CPUs"
duration = "3ms"
host = { cores = 2 }
arm = [{ name = "off" }]
[[vm]]
name = "p"
vcpus = 5
native = true
steps = [{ work = "200us" }, { sleep = "400us" }]
"#
    ));
}

#[test]
fn a_shootdown_waits_for_the_vcpu_that_is_off_its_cpu() {
    insta::assert_snapshot!(trace(
        r#"title = "three vCPUs on two CPUs interrupt each other"
duration = "20ms"
host = { cores = 2 }
arm = [{ name = "kernel", kernel = true }]
[[vm]]
name = "g"
vcpus = 3
steps = [{ work = "=1ms" }, { shootdown = true }]
"#
    ));
}
