// SPDX-License-Identifier: Apache-2.0
//! The properties that the engine promises, on random machines under every arm.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use policy::pause::PauseConfig;
use proptest::prelude::*;
use sim::engine::{Outcome, SimError, Trace, TraceEvent, World};
use sim::fair::YieldKind;
use sim::guest::{Action, Arm, Handler, LockKind, Op, Placing, Ple, Source, Span, Spread, Vm};
use sim::host::{HostModel, HostParams, NewIdle, NumaBalancing, WakeScan};
use topology::host::HostShape;

const MS: u64 = 1_000_000;

fn host(cores: u32, threads: u32) -> HostModel {
    nodes(1, cores, threads)
}

fn nodes(nodes: u32, cores: u32, threads: u32) -> HostModel {
    let shape = HostShape { nodes, llcs: 1, clusters: 1, cores, threads, node_memory_bytes: 1 << 30 };
    HostModel::new(shape.build().unwrap())
}

fn work(mean_ns: u64) -> Op {
    Op::Work { span: Span { mean_ns, spread: Spread::Exponential }, kernel: true, memory: 0 }
}

fn arm(kind: u8) -> Arm {
    let policy = Action::Policy(PauseConfig::default());
    let (kernel, source, action) = match kind % 8 {
        0 => (false, Source::None, Action::Nothing),
        1 => (true, Source::None, Action::Nothing),
        2 => (false, Source::Port { after_ns: 5_000 }, Action::Yield),
        3 => (false, Source::Port { after_ns: 5_000 }, Action::Park { bound_ns: MS }),
        4 => (false, Source::Port { after_ns: 5_000 }, policy),
        5 => (true, Source::Tracepoint { every: 4 }, policy),
        6 => (true, Source::Port { after_ns: 5_000 }, policy),
        _ => (false, Source::Sampler { window_ns: 100_000 }, policy),
    };
    Arm {
        kernel,
        handler: if kind % 16 < 8 { Handler::Linux612 } else { Handler::Linux38 },
        bail_out: true,
        source,
        action,
        locality: true,
    }
}

fn vm(vcpus: usize, locks: Vec<LockKind>, program: Vec<Op>, arm: Arm) -> Vm {
    Vm {
        name: "vm".into(),
        vcpus,
        programs: vec![program],
        locks,
        cpus: Vec::new(),
        placing: Placing::Free,
        memory: Vec::new(),
        resident_bytes: 1 << 30,
        private: false,
        native: false,
        arm,
        ple: Ple::default(),
    }
}

fn section(lock: usize, halts: bool, irqs_off: bool, hold_ns: u64) -> [Op; 3] {
    [Op::Acquire { lock, halts, irqs_off }, work(hold_ns), Op::Release { lock }]
}

/// A program with a bit of everything that `choice` switches on.
fn program(choice: u8, halts: bool) -> Vec<Op> {
    let mut ops = vec![work(20_000)];
    if choice & 1 != 0 {
        ops.extend(section(0, halts, false, 2_000));
    }
    if choice & 2 != 0 {
        ops.push(Op::Shootdown);
    }
    if choice & 4 != 0 {
        ops.push(Op::Sleep { span: Span { mean_ns: 50_000, spread: Spread::Around } });
    }
    if choice & 8 != 0 {
        ops.push(Op::Barrier { halts });
    }
    if choice & 16 != 0 {
        ops.extend(section(1, false, true, 1_000));
    }
    ops
}

fn kind(of: u8) -> LockKind {
    [LockKind::Ticket, LockKind::Queued, LockKind::Unfair, LockKind::Ring][usize::from(of) % 4]
}

fn run(host: HostModel, params: HostParams, vms: Vec<Vm>, seed: u64, ns: u64) -> World {
    let mut world = World::new(host, params, vms, seed, Trace::new(1_000_000)).unwrap();
    world.run_until(ns).unwrap();
    world
}

#[derive(Debug, Clone)]
struct Case {
    nodes: u32,
    cores: u32,
    threads: u32,
    vcpus: usize,
    arm: u8,
    locks: [u8; 2],
    choice: u8,
    halts: bool,
    pinned: bool,
    params: HostParams,
    seed: u64,
}

fn params() -> impl Strategy<Value = HostParams> {
    (0usize..3, 0usize..4, 0usize..3, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(yields, newidle, numa, wake_preempts, clustered, next_buddy)| HostParams {
            numa: [NumaBalancing::Off, NumaBalancing::PerCpu, NumaBalancing::PerNode][numa],
            numa_scan_ns: 2 * MS,
            yields: [YieldKind::Skip, YieldKind::DeadlineOnly, YieldKind::ForfeitLag][yields],
            newidle: [NewIdle::Off, NewIdle::Always, NewIdle::Gated, NewIdle::Rated][newidle],
            wake_preempts,
            next_buddy,
            wake_scan: if clustered { WakeScan::Cluster } else { WakeScan::Llc },
            ..HostParams::default()
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (1u32..3, 1u32..5, 1u32..3, 1usize..10);
    let guest = (any::<u8>(), any::<[u8; 2]>(), any::<u8>(), any::<bool>(), any::<bool>());
    (shape, guest, params(), any::<u64>()).prop_map(|((nodes, cores, threads, vcpus), guest, params, seed)| {
        let (arm, locks, choice, halts, pinned) = guest;
        Case { nodes, cores, threads, vcpus, arm, locks, choice, halts, pinned, params, seed }
    })
}

fn play(case: &Case) -> World {
    // Spinning with interrupts off for a turn that needs one's answer would be the guest's own deadlock: no ring there.
    let locks = vec![kind(case.locks[0]), kind(case.locks[1] % 3)];
    let mut machine = vm(case.vcpus, locks, program(case.choice, case.halts), arm(case.arm));
    machine.placing = if case.pinned { Placing::Pinned } else { Placing::Free };
    let other = Vm { name: "other".into(), ..vm(2, vec![LockKind::Ticket; 2], program(1, false), arm(0)) };
    run(nodes(case.nodes, case.cores, case.threads), case.params, vec![machine, other], case.seed, 40 * MS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_nanosecond_of_every_cpu_and_of_every_task_is_accounted_once(case in case()) {
        let audit = play(&case).audit();
        prop_assert!(audit.cpu_ns.iter().chain(&audit.task_ns).all(|&ns| ns == 40 * MS), "{audit:?}");
        prop_assert_eq!(audit.misplaced, 0);
    }

    #[test]
    fn no_wake_up_is_lost(case in case()) {
        let mut world = play(&case);
        prop_assert_eq!(world.audit().lost_wakeups, 0);
        let before: Vec<u64> = world.outcome().vms[0].operations.clone();
        // Whatever waits is let go in the end: everybody gets on, however slowly a preempted owner is passed on.
        world.run_until(400 * MS).unwrap();
        let after = world.outcome().vms[0].operations.clone();
        prop_assert!(before.iter().zip(&after).any(|(a, b)| a < b), "{before:?} {after:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_trace(case in case()) {
        let (mut once, mut again) = (play(&case), play(&case));
        prop_assert_eq!(once.outcome(), again.outcome());
        prop_assert_eq!(once.trace(), again.trace());
        let other = play(&Case { seed: case.seed ^ 1, ..case }).outcome();
        prop_assert_ne!(other.fingerprint, once.outcome().fingerprint);
    }

    #[test]
    fn a_lock_has_one_owner_and_fifo_locks_are_passed_on_in_order_of_arrival(
        vcpus in 2usize..8, cores in 1u32..4, queued in any::<bool>(), arm_of in any::<u8>(), seed in any::<u64>(),
    ) {
        let lock = if queued { LockKind::Queued } else { LockKind::Ticket };
        let mut ops = vec![work(3_000)];
        ops.extend(section(0, false, false, 2_000));
        let world = run(host(cores, 1), HostParams::default(), vec![vm(vcpus, vec![lock], ops, arm(arm_of))], seed, 40 * MS);
        // Spinners begin in order of arrival; those who spin get the lock in that order.
        let mut line = std::collections::VecDeque::new();
        for (at, event) in &world.trace().events {
            match *event {
                TraceEvent::Spins { task, .. } => line.push_back(task),
                TraceEvent::Gets { task, .. } if line.contains(&task) => {
                    prop_assert_eq!(line.pop_front(), Some(task), "at {}", at);
                }
                _ => {}
            }
        }
        prop_assert!(world.trace().events.len() > 10);
    }
}

#[test]
fn who_waits_for_nobody_is_named() {
    let ops = vec![Op::Receive];
    let world = World::new(host(1, 1), HostParams::default(), vec![vm(2, vec![], ops, arm(0))], 1, Trace::new(0));
    assert!(matches!(world.unwrap().run_until(MS), Err(SimError::Stuck { .. })));
}

#[test]
fn a_vm_that_contradicts_itself_is_refused() {
    let refused =
        |vm: Vm| World::new(host(2, 1), HostParams::default(), vec![vm], 1, Trace::new(0)).unwrap_err().to_string();
    let good = vm(2, vec![], vec![work(1_000)], arm(0));
    for (bad, says) in [
        (Vm { vcpus: 0, ..good.clone() }, "0 vCPUs"),
        (Vm { programs: vec![], ..good.clone() }, "0 programs"),
        (Vm { cpus: vec![2], ..good.clone() }, "CPU 2, but there are only 2"),
        (Vm { memory: vec![1], ..good.clone() }, "node 1, but there are only 1"),
        (vm(2, vec![], vec![Op::Release { lock: 0 }], arm(0)), "lock 0"),
        (vm(3, vec![], vec![Op::Send { lines: 1 }, Op::Receive], arm(0)), "even"),
    ] {
        let text = refused(bad);
        assert!(text.contains(says), "{text} should say {says}");
    }
}

fn ring(vcpus: usize, cores: u32, arm: Arm) -> Outcome {
    let ops = vec![Op::Acquire { lock: 0, halts: false, irqs_off: false }, Op::Release { lock: 0 }];
    run(host(cores, 1), HostParams::default(), vec![vm(vcpus, vec![LockKind::Ring], ops, arm)], 1, 1_000 * MS).outcome()
}

#[test]
fn on_one_cpu_a_spinner_that_nobody_asks_costs_a_tick_a_hand_over_and_a_yield_ends_it() {
    let none = ring(2, 1, arm(0)).vms[0].counts.hand_overs;
    assert!((200..=300).contains(&none), "{none}");
    for kind in [1, 2, 3, 4, 6] {
        let helped = ring(2, 1, arm(kind)).vms[0].counts.hand_overs;
        assert!(helped > 20 * none, "arm {kind}: {helped}");
    }
}

#[test]
fn with_a_cpu_for_each_the_policy_stays_out_of_the_way() {
    let none = ring(2, 2, arm(0)).vms[0].counts.hand_overs;
    let act = ring(2, 2, arm(4)).vms[0].counts.hand_overs;
    assert!(act * 100 >= none * 95, "{act} {none}");
}

/// Laps of one process under each kind of NUMA balancing: its memory is on node 0, and so are the CPUs it does not start on.
fn laps_with_memory_elsewhere(numa: NumaBalancing, private: bool) -> Outcome {
    let ops = vec![Op::Work { span: Span::fixed(5 * MS), kernel: false, memory: 1024 }];
    let one = Vm { placing: Placing::Free, native: true, private, ..vm(4, vec![], ops.clone(), arm(0)) };
    let other = Vm { name: "other".into(), ..one.clone() };
    let params = HostParams { numa, ..HostParams::default() };
    run(nodes(2, 4, 1), params, vec![one, other], 1, 40_000 * MS).outcome()
}

#[test]
fn numa_balancing_brings_threads_and_the_memory_they_share_together() {
    let total = |outcome: &Outcome| outcome.vms.iter().map(|vm| vm.total()).sum::<u64>();
    let off = laps_with_memory_elsewhere(NumaBalancing::Off, false);
    for numa in [NumaBalancing::PerCpu, NumaBalancing::PerNode] {
        let on = laps_with_memory_elsewhere(numa, false);
        assert!(on.vms.iter().map(|vm| vm.migrations).sum::<u64>() > 0, "{numa:?}");
        // Two processes that begin on both nodes end on one each: half of what each touched was far.
        assert!(total(&on) * 100 > total(&off) * 103, "{numa:?}: {} {}", total(&on), total(&off));
    }
}

#[test]
fn a_smaller_part_of_a_core_is_left_to_each_thread_the_more_are_busy() {
    let ops = vec![Op::Work { span: Span::fixed(MS), kernel: false, memory: 0 }];
    let laps = |vcpus: usize, smt_by_number: bool| {
        let pinned = Vm { placing: Placing::Pinned, ..vm(vcpus, vec![], ops.clone(), arm(0)) };
        let params = HostParams { smt_slowdown: [1464, 2012, 2560], smt_by_number, ..HostParams::default() };
        run(host(1, 4), params, vec![pinned], 1, 1_000 * MS).outcome().vms[0].total()
    };
    // POWER7: one, two and four threads of a core bring 1, 1.4 and 1.6 times what one does.
    assert_eq!([1, 2, 4].map(|vcpus| laps(vcpus, false) / 10), [99, 139, 159]);
    let last = Vm { cpus: vec![3], ..vm(1, vec![], ops.clone(), arm(0)) };
    let params = HostParams { smt_slowdown: [1464, 2012, 2560], smt_by_number: true, ..HostParams::default() };
    let alone = run(host(1, 4), params, vec![last], 1, 1_000 * MS).outcome().vms[0].total();
    assert_eq!((laps(1, true) / 10, alone / 10), (99, 39));
}
