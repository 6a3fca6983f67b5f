// SPDX-License-Identifier: Apache-2.0
//! The properties that `policy::pause` documents, each a test of the same name, on arbitrary views and events.

use policy::pause::{
    Act, Class, HostView, How, Locality, Mechanisms, OutcomeEvent, PauseConfig, PauseEvent, PauseState, Reason,
    VcpuState, VcpuView, YieldOutcome, decide,
};
use policy::time::Nanos;
use proptest::prelude::*;
use topology::id::{HostCpu, HostNode, VcpuIndex};

type Change = fn(&mut VcpuView);

const STATES: [VcpuState; 6] = [
    VcpuState::Stopped,
    VcpuState::Unknown,
    VcpuState::Running,
    VcpuState::Queued,
    VcpuState::Halted,
    VcpuState::Parked,
];

fn localities() -> Vec<Option<Locality>> {
    (0..8).map(|cpu| Some(Locality { cluster: cpu / 2, llc: cpu / 4, node: HostNode(cpu / 4) })).collect()
}

fn vcpu() -> impl Strategy<Value = VcpuView> {
    (
        prop::sample::select(&STATES[..]),
        any::<[bool; 3]>(),
        any::<Option<bool>>(),
        prop::option::of(0_u32..10),
        prop::option::of(0_u32..4),
        prop::option::of(0_u64..5_000_000),
    )
        .prop_map(|(state, [spinning, pending_interrupt, preempted], in_kernel, cpu, runqueue, since)| VcpuView {
            state,
            spinning,
            pending_interrupt,
            preempted,
            in_kernel,
            cpu: cpu.map(HostCpu),
            runqueue,
            waiting_since: since.map(Nanos),
        })
}

fn host() -> impl Strategy<Value = HostView> {
    (prop::collection::vec(vcpu(), 1..80), 1_u32..4, prop::option::of(0_u32..1100)).prop_map(|(vcpus, cpus, busy)| {
        let mut view = HostView::new(vcpus.len(), localities(), cpus);
        for (at, seen) in (0..).zip(vcpus) {
            view.set(VcpuIndex(at), seen);
        }
        view.set_utilisation(busy);
        view
    })
}

prop_compose! {
    fn event()(
        source in 0_u32..82,
        owner in prop::option::of(0_u32..90),
        interrupted in prop::option::of(0_u32..90),
        progress in any::<Option<u32>>(),
        named_since_entry in any::<bool>(),
        descheduled in any::<bool>(),
    ) -> PauseEvent {
        PauseEvent {
            source: VcpuIndex(source),
            owner: owner.map(VcpuIndex),
            interrupted: interrupted.map(VcpuIndex),
            progress,
            named_since_entry,
            descheduled,
        }
    }
}

fn config() -> impl Strategy<Value = PauseConfig> {
    (any::<[bool; 4]>(), 1_u32..5, 1_u32..100, 2_u32..10).prop_map(
        |([sched_yield, park, hypercall, pause_exits], bail, scan, turn)| PauseConfig {
            mechanisms: Mechanisms { sched_yield, park, hypercall, pause_exits },
            bail_after: bail,
            scan_limit: scan,
            turn_every: turn,
            ..PauseConfig::default()
        },
    )
}

/// Feeds the events to a fresh state a millisecond apart and hands every decision to `check`.
fn run(view: &HostView, events: &[PauseEvent], config: &PauseConfig, mut check: impl FnMut(&PauseEvent, Nanos, Act)) {
    let mut state = PauseState::new(view.vcpu_count());
    let mut now = Nanos(10_000_000);
    for event in events {
        let decision = decide(event, view, &mut state, config, now);
        check(event, now, decision.act);
        if let Some(target) = decision.target() {
            let outcome = YieldOutcome::Boosted;
            let ended =
                OutcomeEvent { source: event.source, target: Some(target), outcome, parked: false, donated_ns: 50_000 };
            state.outcome(&ended, config, now);
        }
        now = now.after(1_000_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn never_itself(view in host(), events in prop::collection::vec(event(), 1..40), config in config()) {
        run(&view, &events, &config, |event, _, act| {
            if let Act::YieldTo { target, .. } = act {
                assert_ne!(target, event.source);
            }
        });
    }

    #[test]
    fn never_a_running_or_idle_target(
        view in host(),
        events in prop::collection::vec(event(), 1..40),
        config in config(),
    ) {
        run(&view, &events, &config, |_, _, act| {
            if let Act::YieldTo { target, how } = act {
                let seen = view.get(target).expect("a target exists");
                let woken = matches!(how, How::Wake | How::WakeThenYield | How::WakeAndPark { .. });
                assert!(seen.wants_cpu() || (seen.state == VcpuState::Parked && woken), "{seen:?}");
            }
        });
    }

    #[test]
    fn every_park_is_bounded(view in host(), events in prop::collection::vec(event(), 1..40), config in config()) {
        run(&view, &events, &config, |event, now, act| {
            let until = match act {
                Act::Park { until } | Act::YieldTo { how: How::WakeAndPark { until }, .. } => until,
                _ => return,
            };
            assert!(until.since(now) <= config.park_max_ns && now.is_before(until));
            assert!(config.mechanisms.park && !event.named_since_entry);
        });
    }

    #[test]
    fn only_granted_mechanisms(view in host(), events in prop::collection::vec(event(), 1..40), config in config()) {
        let granted = config.mechanisms;
        run(&view, &events, &config, |_, _, act| match act {
            Act::Yield | Act::YieldTo { how: How::SchedYield, .. } => {
                assert!(granted.sched_yield && !granted.hypercall);
            }
            Act::YieldTo { how: How::WakeThenYield, .. } => assert!(granted.sched_yield),
            Act::YieldTo { how: How::Hypercall, .. } => assert!(granted.hypercall),
            Act::Park { .. } | Act::YieldTo { how: How::WakeAndPark { .. }, .. } => assert!(granted.park),
            _ => {}
        });
    }

    #[test]
    fn same_input_same_output(view in host(), events in prop::collection::vec(event(), 1..60), config in config()) {
        let record = || {
            let mut all = Vec::new();
            run(&view, &events, &config, |_, now, act| all.push((now, act)));
            all
        };
        prop_assert_eq!(record(), record());
    }

    #[test]
    fn every_event_of_a_vcpu_is_counted_once(
        view in host(),
        events in prop::collection::vec(event(), 1..60),
        config in config(),
    ) {
        let mut state = PauseState::new(view.vcpu_count());
        for event in &events {
            decide(event, &view, &mut state, &config, Nanos(1));
        }
        for at in (0..).take(view.vcpu_count()) {
            let counters = state.counters(VcpuIndex(at)).expect("the vCPU exists");
            let decided = counters.yields + counters.parks + counters.spins + counters.bailed.iter().sum::<u64>();
            prop_assert_eq!(counters.events, decided);
            prop_assert_eq!(counters.events, events.iter().filter(|e| e.source.0 == at).count() as u64);
        }
    }

    #[test]
    fn both_runqueues_at_one_bail_out(
        view in host(),
        events in prop::collection::vec(event(), 1..40),
        config in config(),
    ) {
        run(&view, &events, &config, |event, _, act| {
            if let Act::YieldTo { target, how } = act {
                let length = |vcpu| view.get(vcpu).and_then(|v| v.runqueue);
                let woken = view.get(target).is_some_and(|t| t.state == VcpuState::Parked);
                assert!(woken || length(event.source) != Some(1) || length(target) != Some(1), "{how:?}");
            }
        });
    }

    #[test]
    fn after_a_boost_of_v_the_next_scan_starts_at_v_plus_1(vcpus in 3_u32..200, boosted in 0_u32..200, source in 0_u32..200) {
        let (boosted, source) = (boosted % vcpus, source % vcpus);
        prop_assume!(boosted != source);
        // All alike, so that nothing but the order of the scan decides.
        let view = alike(vcpus, source, |v| v.state = VcpuState::Queued);
        let config = PauseConfig { turn_every: 1024, ..PauseConfig::default() };
        let mut state = PauseState::new(vcpus as usize);
        let outcome = YieldOutcome::Boosted;
        let target = Some(VcpuIndex(boosted));
        state.outcome(&OutcomeEvent { source: VcpuIndex(source), target, outcome, parked: false, donated_ns: 1 }, &config, Nanos(1));
        let decision = decide(&unnamed(source), &view, &mut state, &config, Nanos(2));
        let next = (1..vcpus).map(|step| (boosted + step) % vcpus).find(|v| *v != source);
        prop_assert_eq!(decision.target(), next.map(VcpuIndex));
    }

    #[test]
    fn nobody_starves(vcpus in 3_u32..40, favoured in 1_u32..39) {
        // One vCPU is always the better choice by class, place and wait; the others get their turn all the same.
        let favoured = 1 + favoured % (vcpus - 1);
        let mut view = alike(vcpus, 0, |v| v.state = VcpuState::Unknown);
        view.update(VcpuIndex(favoured), |v| {
            v.state = VcpuState::Queued;
            v.pending_interrupt = true;
            v.waiting_since = Some(Nanos(0));
        });
        let config = PauseConfig::default();
        let mut state = PauseState::new(vcpus as usize);
        let mut got = vec![0; vcpus as usize];
        let mut now = Nanos(1_000_000_000);
        for _ in 0..config.turn_every * vcpus {
            if let Some(target) = decide(&unnamed(0), &view, &mut state, &config, now).target() {
                got[target.index()] += 1;
                let outcome = YieldOutcome::Boosted;
                let ended = OutcomeEvent { source: VcpuIndex(0), target: Some(target), outcome, parked: false, donated_ns: 1 };
                state.outcome(&ended, &config, now);
            }
            now = now.after(1_000_000);
        }
        prop_assert!(got[1..].iter().all(|n| *n > 0), "{:?}", got);
    }

    #[test]
    fn a_spinner_is_considered_at_least_every_other_look(vcpus in 2_u32..64) {
        let view = alike(vcpus, 0, |v| {
            v.state = VcpuState::Queued;
            v.spinning = true;
        });
        let config = PauseConfig { turn_every: 1024, ..PauseConfig::default() };
        let mut state = PauseState::new(vcpus as usize);
        let mut look = |now| decide(&PauseEvent { descheduled: true, ..unnamed(0) }, &view, &mut state, &config, now).act;
        let looks: Vec<Act> = (1..7).map(|n| look(Nanos(n * 1_000_000_000))).collect();
        for pair in looks.windows(2) {
            prop_assert!(pair.iter().any(|act| matches!(act, Act::YieldTo { .. })), "{:?}", looks);
        }
        prop_assert_eq!(looks[0], Act::Bail(Reason::NoneEligible));
    }
}

fn unnamed(source: u32) -> PauseEvent {
    PauseEvent {
        source: VcpuIndex(source),
        owner: None,
        interrupted: None,
        progress: None,
        named_since_entry: false,
        descheduled: false,
    }
}

/// `vcpus` vCPUs that are all as `change` makes them, but for a running source.
fn alike(vcpus: u32, source: u32, change: impl Fn(&mut VcpuView)) -> HostView {
    let mut view = HostView::new(vcpus as usize, localities(), 1);
    for at in 0..vcpus {
        let mut seen = VcpuView { cpu: Some(HostCpu(0)), runqueue: Some(vcpus), ..VcpuView::default() };
        change(&mut seen);
        if at == source {
            seen.state = VcpuState::Running;
        }
        view.set(VcpuIndex(at), seen);
    }
    view
}

#[test]
fn three_lone_targets_end_the_scan() {
    // Seven lone targets come before the one that could be helped; the scan ends after the third.
    let mut view = alike(9, 0, |v| {
        v.state = VcpuState::Unknown;
        v.runqueue = Some(1);
    });
    view.update(VcpuIndex(0), |v| v.runqueue = Some(1));
    view.update(VcpuIndex(8), |v| v.runqueue = Some(2));
    let act = |bail_after| {
        let config = PauseConfig { bail_after, ..PauseConfig::default() };
        decide(&unnamed(0), &view, &mut PauseState::new(9), &config, Nanos(1)).act
    };
    assert_eq!(act(3), Act::Bail(Reason::NobodyWaiting));
    assert!(matches!(act(8), Act::YieldTo { target: VcpuIndex(8), .. }));
}

#[test]
fn length_one_on_the_source_alone_is_not_enough() {
    let mut view = alike(2, 0, |v| v.state = VcpuState::Queued);
    view.update(VcpuIndex(0), |v| v.runqueue = Some(1));
    for (length, helped) in [(Some(2), true), (None, true), (Some(1), false)] {
        view.update(VcpuIndex(1), |v| v.runqueue = length);
        let event = PauseEvent { owner: Some(VcpuIndex(1)), ..unnamed(0) };
        let act = decide(&event, &view, &mut PauseState::new(2), &PauseConfig::default(), Nanos(1)).act;
        assert_eq!(matches!(act, Act::YieldTo { .. }), helped, "{length:?}: {act:?}");
    }
}

#[test]
fn classes_come_in_their_documented_order() {
    let classes: [(Class, Change); 5] = [
        (Class::Spinning, |v| v.spinning = true),
        (Class::Runnable, |_| {}),
        (Class::Preempted, |v| v.preempted = true),
        (Class::PreemptedKernel, |v| {
            v.preempted = true;
            v.in_kernel = Some(true);
        }),
        (Class::PendingInterrupt, |v| v.pending_interrupt = true),
    ];
    let config = PauseConfig { turn_every: 1024, ..PauseConfig::default() };
    let mut view = alike(8, 0, |v| v.state = VcpuState::Stopped);
    let mut state = PauseState::new(8);
    // Spinners become eligible at the second look.
    for (at, (class, change)) in (1..).zip(classes) {
        view.update(VcpuIndex(at), |v| {
            v.state = VcpuState::Unknown;
            change(v);
        });
        let event = PauseEvent { descheduled: true, ..unnamed(0) };
        if class == Class::Spinning {
            decide(&event, &view, &mut state, &config, Nanos(1));
        }
        let decision = decide(&event, &view, &mut state, &config, Nanos(2));
        assert_eq!((decision.target(), decision.class), (Some(VcpuIndex(at)), Some(class)));
    }
    let event = PauseEvent { interrupted: Some(VcpuIndex(2)), ..unnamed(0) };
    let decision = decide(&event, &view, &mut state, &config, Nanos(3));
    assert_eq!((decision.target(), decision.class), (Some(VcpuIndex(2)), Some(Class::Interrupted)));
    let event = PauseEvent { owner: Some(VcpuIndex(1)), ..event };
    let decision = decide(&event, &view, &mut state, &config, Nanos(4));
    assert_eq!((decision.target(), decision.class), (Some(VcpuIndex(1)), Some(Class::NamedOwner)));
}

#[test]
fn inside_a_class_the_nearest_comes_first_then_the_longest_wait() {
    let mut view = alike(6, 0, |v| v.state = VcpuState::Queued);
    let config = PauseConfig { turn_every: 1024, ..PauseConfig::default() };
    // CPUs 0-7 in pairs by cluster, in fours by LLC and node; CPU 9 is in no map.
    for (at, cpu) in [(1, 9), (2, 4), (3, 2), (4, 1), (5, 0)] {
        view.update(VcpuIndex(at), |v| v.cpu = Some(HostCpu(cpu)));
    }
    let choice = |view: &HostView| decide(&unnamed(0), view, &mut PauseState::new(6), &config, Nanos(100)).target();
    for nearest in [5, 4, 3] {
        assert_eq!(choice(&view), Some(VcpuIndex(nearest)));
        view.update(VcpuIndex(nearest), |v| v.state = VcpuState::Running);
    }
    view.update(VcpuIndex(2), |v| v.waiting_since = Some(Nanos(50)));
    view.update(VcpuIndex(1), |v| v.waiting_since = Some(Nanos(40)));
    assert_eq!(choice(&view), Some(VcpuIndex(1)));
}

#[test]
fn the_back_off_window_doubles_while_useless_and_resets_when_descheduled() {
    let mut view = alike(2, 0, |v| v.state = VcpuState::Unknown);
    for at in 0..2 {
        view.update(VcpuIndex(at), |v| v.runqueue = Some(1));
    }
    let config = PauseConfig::default();
    let mut state = PauseState::new(2);
    let event = PauseEvent { owner: Some(VcpuIndex(1)), ..unnamed(0) };
    let mut now = Nanos(1);
    let mut window = config.backoff_base_ns;
    for _ in 0..12 {
        let decision = decide(&event, &view, &mut state, &config, now);
        assert_eq!(decision.act, Act::Bail(Reason::NobodyWaiting));
        assert_eq!(decision.quiet_until, now.after(window));
        let early = decide(&event, &view, &mut state, &config, now.after(window - 1));
        assert_eq!((early.act, early.quiet_until), (Act::Bail(Reason::BackingOff), now.after(window)));
        now = now.after(window);
        window = (window * 2).min(config.backoff_max_ns);
    }
    let back = PauseEvent { descheduled: true, ..event };
    let decision = decide(&back, &view, &mut state, &config, now.after(1));
    assert_eq!(decision.quiet_until, now.after(1 + config.backoff_base_ns));
}

#[test]
fn a_parked_owner_is_woken_even_inside_the_back_off_window() {
    let mut view = alike(3, 0, |v| v.state = VcpuState::Running);
    view.update(VcpuIndex(0), |v| v.runqueue = Some(1));
    let config = PauseConfig::default();
    let mut state = PauseState::new(3);
    let event = PauseEvent { owner: Some(VcpuIndex(1)), ..unnamed(0) };
    assert_eq!(decide(&event, &view, &mut state, &config, Nanos(1)).act, Act::Bail(Reason::OwnerRunning));
    view.update(VcpuIndex(1), |v| v.state = VcpuState::Parked);
    assert_eq!(decide(&event, &view, &mut state, &config, Nanos(2)).target(), Some(VcpuIndex(1)));
}

#[test]
fn who_waits_for_a_running_owner_steps_aside_for_those_who_want_its_cpu() {
    let mut view = alike(3, 0, |v| v.state = VcpuState::Queued);
    view.update(VcpuIndex(1), |v| v.state = VcpuState::Running);
    let event = PauseEvent { owner: Some(VcpuIndex(1)), ..unnamed(0) };
    let act = |mechanisms, named_since_entry, view: &HostView| {
        let config = PauseConfig { mechanisms, ..PauseConfig::default() };
        let event = PauseEvent { named_since_entry, ..event };
        let mut state = PauseState::new(3);
        // vCPU 2 has waited for longer: its turn comes first.
        decide(&PauseEvent { source: VcpuIndex(2), ..event }, view, &mut state, &config, Nanos(0));
        decide(&event, view, &mut state, &config, Nanos(1)).act
    };
    let all = Mechanisms { sched_yield: true, park: true, ..Mechanisms::default() };
    assert!(matches!(act(all, false, &view), Act::Park { .. }));
    assert_eq!(act(all, true, &view), Act::Yield, "its own turn may have come");
    assert_eq!(act(Mechanisms { park: false, ..all }, false, &view), Act::Yield);
    // Where the kernel yields to a target, there is one: whoever is queued.
    let directed = act(Mechanisms { park: false, hypercall: true, ..all }, false, &view);
    assert_eq!(directed, Act::YieldTo { target: VcpuIndex(2), how: How::Hypercall });
    view.update(VcpuIndex(0), |v| v.runqueue = Some(1));
    assert_eq!(act(all, false, &view), Act::Bail(Reason::OwnerRunning), "nobody wants its CPU");
}

#[test]
fn who_is_first_in_line_for_a_running_owner_stays_for_a_slice() {
    let mut view = alike(3, 0, |v| v.state = VcpuState::Queued);
    view.update(VcpuIndex(1), |v| v.state = VcpuState::Running);
    let mechanisms = Mechanisms { park: false, ..Mechanisms::default() };
    let config = PauseConfig { mechanisms, ..PauseConfig::default() };
    let mut state = PauseState::new(3);
    let wait = |source| PauseEvent { owner: Some(VcpuIndex(1)), progress: Some(0), ..unnamed(source) };
    let mut act = |event: &PauseEvent, view: &HostView, now| decide(event, view, &mut state, &config, Nanos(now)).act;
    let stays = Act::Bail(Reason::OwnerRunning);
    assert_eq!(act(&wait(0), &view, 1), stays);
    assert_eq!(act(&wait(2), &view, 2), Act::Yield, "vCPU 0 has waited for longer");
    assert_eq!(act(&wait(0), &view, config.first_in_line_ns), stays);
    assert_eq!(
        act(&wait(0), &view, config.first_in_line_ns + 1),
        Act::Yield,
        "others have waited for its CPU for long enough"
    );
    // Named as the owner, vCPU 0 waits no more, and vCPU 2 is the first.
    view.update(VcpuIndex(0), |v| v.state = VcpuState::Running);
    let behind = PauseEvent { owner: Some(VcpuIndex(0)), ..wait(2) };
    assert_eq!(act(&behind, &view, 3), stays);
}

#[test]
fn who_was_named_meanwhile_looks_again_and_does_not_sleep() {
    let view = alike(3, 0, |v| v.state = VcpuState::Queued);
    let config = PauseConfig::default();
    let named = PauseEvent { owner: Some(VcpuIndex(1)), named_since_entry: true, progress: Some(0), ..unnamed(0) };
    let act = |event: &PauseEvent| decide(event, &view, &mut PauseState::new(3), &config, Nanos(1)).act;
    assert_eq!(act(&named), Act::Bail(Reason::NamedMeanwhile));
    let moved = PauseEvent { progress: Some(1), ..named };
    assert_eq!(act(&moved), Act::YieldTo { target: VcpuIndex(1), how: How::SchedYield });
    let calm = PauseEvent { named_since_entry: false, ..named };
    assert!(matches!(act(&calm), Act::YieldTo { how: How::WakeAndPark { .. }, .. }));
}

#[test]
fn who_gave_its_credit_away_guesses_no_more_until_it_is_repaid() {
    let view = alike(3, 0, |v| v.state = VcpuState::Queued);
    let config = PauseConfig::default();
    let mut state = PauseState::new(3);
    let give = |source, target| OutcomeEvent {
        source: VcpuIndex(source),
        target: Some(VcpuIndex(target)),
        outcome: YieldOutcome::Boosted,
        parked: false,
        donated_ns: config.credit_ns,
    };
    state.outcome(&give(0, 1), &config, Nanos(1));
    assert_eq!(decide(&unnamed(0), &view, &mut state, &config, Nanos(2)).act, Act::Bail(Reason::DonatedEnough));
    // vCPU 1 has had its credit, vCPU 2 has not.
    state.outcome(&give(2, 0), &config, Nanos(3));
    assert_eq!(decide(&unnamed(0), &view, &mut state, &config, Nanos(4)).target(), Some(VcpuIndex(2)));
    let given: u64 = (0..3).filter_map(|v| state.ledger(VcpuIndex(v))).map(|l| l.donated_ns).sum();
    let got: u64 = (0..3).filter_map(|v| state.ledger(VcpuIndex(v))).map(|l| l.received_ns).sum();
    assert_eq!(given, got);
}

/// Kernel bug fa93384f40de: "nobody waiting" was read as "boosted", and round robin and back-off followed a boost that
/// had not happened.
#[test]
fn nobody_waiting_is_not_a_boost() {
    let config = PauseConfig::default();
    for outcome in [YieldOutcome::NotBoosted, YieldOutcome::NobodyWaiting] {
        let mut state = PauseState::new(4);
        let ended =
            OutcomeEvent { source: VcpuIndex(0), target: Some(VcpuIndex(2)), outcome, parked: false, donated_ns: 9 };
        state.outcome(&ended, &config, Nanos(1));
        let view = alike(4, 0, |v| v.state = VcpuState::Queued);
        let early = decide(&unnamed(0), &view, &mut state, &config, Nanos(2));
        assert_eq!(early.act, Act::Bail(Reason::BackingOff));
        let later = decide(&unnamed(0), &view, &mut state, &config, early.quiet_until);
        assert_eq!(later.target(), Some(VcpuIndex(1)), "the scan still starts at the beginning");
        assert_eq!(state.ledger(VcpuIndex(2)).map(|l| l.received_ns), Some(0));
        assert_eq!(state.counters(VcpuIndex(0)).map(|c| c.outcomes[outcome.index()]), Some(1));
    }
}

/// Kernel bug 89340d0935c9: a waiter that stops waiting because its predecessor is off CPU set off a cascade, each
/// waiter giving up for the next. Spinners that follow each other's hints end at a vCPU that is not spinning.
#[test]
fn spinners_do_not_cascade() {
    let mut view = alike(4, 0, |v| {
        v.state = VcpuState::Queued;
        v.spinning = true;
    });
    view.update(VcpuIndex(3), |v| v.spinning = false);
    let mut state = PauseState::new(4);
    let config = PauseConfig { turn_every: 1024, ..PauseConfig::default() };
    for now in 1..20 {
        let decision = decide(&PauseEvent { descheduled: true, ..unnamed(0) }, &view, &mut state, &config, Nanos(now));
        assert_eq!(decision.target(), Some(VcpuIndex(3)));
    }
}

#[test]
fn what_cannot_be_measured_is_not_yielded_without_direction_on_several_cpus() {
    let config = PauseConfig::default();
    let act = |vcpus, cpus, event: &PauseEvent| {
        let mut view = alike(vcpus, 0, |v| v.state = VcpuState::Queued);
        view.set_usable_cpus(cpus);
        decide(event, &view, &mut PauseState::new(vcpus as usize), &config, Nanos(1)).act
    };
    let parks = |act| matches!(act, Act::YieldTo { how: How::WakeAndPark { .. }, .. });
    assert!(parks(act(4, 2, &unnamed(0))) && parks(act(7, 2, &unnamed(0))));
    assert_eq!(act(8, 2, &unnamed(0)), Act::Spin);
    // Alone on its CPU, or with a measure of what it brings, nothing changes.
    assert_ne!(act(8, 1, &unnamed(0)), Act::Spin);
    assert!(parks(act(8, 2, &PauseEvent { progress: Some(1), ..unnamed(0) })));
}

#[test]
fn a_turn_slept_through_shortens_the_next_parks_and_parks_too_short_lengthen_them_again() {
    let view = alike(3, 0, |v| v.state = VcpuState::Queued);
    let config = PauseConfig::default();
    let mut state = PauseState::new(3);
    let ran_out = OutcomeEvent {
        source: VcpuIndex(0),
        target: Some(VcpuIndex(1)),
        outcome: YieldOutcome::NotBoosted,
        parked: true,
        donated_ns: 1_000_000,
    };
    // A second apart: every window of the back-off is over.
    let mut now = Nanos(0);
    let mut park_after = |progress| {
        now = now.after(1_000_000_000);
        state.outcome(&ran_out, &config, now);
        now = now.after(1_000_000_000);
        let event = PauseEvent { owner: Some(VcpuIndex(1)), progress: Some(progress), ..unnamed(0) };
        let until = decide(&event, &view, &mut state, &config, now).parks_until();
        until.map(|until| until.since(now))
    };
    assert_eq!(park_after(0), Some(config.park_named_ns));
    assert_eq!(park_after(1), Some(config.park_named_ns / 2));
    assert!((0..15).all(|_| park_after(0) == Some(config.park_named_ns / 2)));
    assert_eq!(park_after(0), Some(config.park_named_ns));
    let shortest = (0..20).map(|_| park_after(1)).last().flatten();
    assert_eq!(shortest, Some(config.park_unnamed_ns));
    let parks: Vec<_> = (0..96).map(|_| park_after(0)).collect();
    assert_eq!((parks[0], parks[95]), (Some(config.park_unnamed_ns), Some(config.park_named_ns)));
}
