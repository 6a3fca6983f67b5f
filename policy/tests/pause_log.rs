// SPDX-License-Identifier: Apache-2.0
//! The decision log: what was written reads back equal and replays to the same decisions; damaged bytes are refused.

use policy::pause::log::{LogError, Reader, Record, VERSION, Writer, replay};
use policy::pause::{
    Act, HostView, Locality, OutcomeEvent, PauseConfig, PauseEvent, PauseState, VcpuState, VcpuView, YieldOutcome,
    decide,
};
use policy::time::Nanos;
use proptest::prelude::*;
use topology::id::{HostCpu, HostNode, VcpuIndex};

const STATES: [VcpuState; 6] = [
    VcpuState::Stopped,
    VcpuState::Unknown,
    VcpuState::Running,
    VcpuState::Queued,
    VcpuState::Halted,
    VcpuState::Parked,
];

/// What happens between two events, from arbitrary numbers.
#[derive(Clone, Debug)]
struct Step {
    event: PauseEvent,
    changed: u32,
    seen: VcpuView,
    outcome: YieldOutcome,
    parked: bool,
    pause_ns: u64,
    utilisation: Option<u32>,
}

prop_compose! {
    fn step()(
        [source, owner, interrupted, changed] in prop::array::uniform4(0_u32..18),
        hints in any::<[bool; 6]>(),
        progress in any::<Option<u32>>(),
        state in prop::sample::select(&STATES[..]),
        in_kernel in any::<Option<bool>>(),
        [cpu, runqueue] in prop::array::uniform2(prop::option::of(0_u32..9)),
        since in any::<Option<u64>>(),
        outcome in prop::sample::select(YieldOutcome::ALL),
        pause_ns in 0_u64..40_000_000,
        utilisation in prop::option::of(0_u32..1025),
    ) -> Step {
        let [named, ipi, named_since_entry, descheduled, flag, parked] = hints;
        Step {
            event: PauseEvent {
                source: VcpuIndex(source),
                owner: named.then_some(VcpuIndex(owner)),
                interrupted: ipi.then_some(VcpuIndex(interrupted)),
                progress,
                named_since_entry,
                descheduled,
            },
            changed,
            seen: VcpuView {
                state,
                spinning: flag,
                pending_interrupt: ipi,
                preempted: parked,
                in_kernel,
                cpu: cpu.map(HostCpu),
                runqueue,
                waiting_since: since.map(Nanos),
            },
            outcome,
            parked,
            pause_ns,
            utilisation,
        }
    }
}

/// Runs the steps through the policy and writes the log beside it. Half way others are the parameters.
fn record(steps: &[Step], config: &PauseConfig) -> (Vec<u8>, Vec<Record>) {
    let places = vec![Some(Locality { cluster: 1, llc: 2, node: HostNode(3) }), None];
    let mut view = HostView::new(16, places, 2);
    let mut state = PauseState::new(16);
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    let mut writer = Writer::new(&view, config, &mut bytes);
    // Near the end of the clock's range, so that it wraps.
    let mut now = Nanos(u64::MAX - 50_000_000);
    let mut config = *config;
    for (number, step) in steps.iter().enumerate() {
        now = now.after(step.pause_ns);
        if number == steps.len() / 2 {
            config = PauseConfig { park_named_ns: 3_000_000, bail_after: 1, ..config };
        }
        writer.parameters(&config, now, &mut bytes);
        view.set(VcpuIndex(step.changed), step.seen);
        view.set_utilisation(step.utilisation);
        let decision = decide(&step.event, &view, &mut state, &config, now);
        writer.decision(&step.event, &view, &decision, now, &mut bytes);
        records.push(Record::Decision { now, event: step.event, decision });
        if let Act::YieldTo { .. } | Act::Park { .. } = decision.act {
            let event = OutcomeEvent {
                source: step.event.source,
                target: decision.target(),
                outcome: step.outcome,
                parked: step.parked,
                donated_ns: step.pause_ns,
            };
            state.outcome(&event, &config, now);
            writer.outcome(&event, now, &mut bytes);
            records.push(Record::Outcome { now, event });
        }
    }
    (bytes, records)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_reads_back_equal_and_replays(steps in prop::collection::vec(step(), 0..60)) {
        let config = PauseConfig::default();
        let (bytes, records) = record(&steps, &config);
        let mut reader = Reader::new(&bytes).expect("a header that was written");
        prop_assert_eq!(reader.config(), &config);
        for record in &records {
            let read = reader.next_record().expect("a record that was written");
            prop_assert_eq!(read.as_ref(), Some(record));
        }
        prop_assert_eq!(reader.next_record(), Ok(None));
        let replayed = replay(&bytes).expect("a log that was written");
        prop_assert_eq!((replayed.decisions, replayed.mismatch), (steps.len() as u64, None));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(tail in prop::collection::vec(any::<u8>(), 0..300), keep in 0_usize..80) {
        let (good, _) = record(&[], &PauseConfig::default());
        let mut bytes = good[..keep.min(good.len())].to_vec();
        bytes.extend(tail);
        // Only that it returns: any answer is right for arbitrary bytes.
        let _ = replay(&bytes);
    }

    #[test]
    fn a_log_that_is_cut_off_says_so(steps in prop::collection::vec(step(), 1..10), cut in 1_usize..500) {
        let (bytes, _) = record(&steps, &PauseConfig::default());
        let cut = bytes.len() - 1 - cut % (bytes.len() - 1);
        match replay(&bytes[..cut]) {
            Ok(replayed) => prop_assert!(replayed.decisions <= steps.len() as u64 && replayed.mismatch.is_none()),
            Err(error) => prop_assert!(matches!(error, LogError::Truncated { .. } | LogError::NotALog), "{error}"),
        }
    }
}

fn busy_pair() -> Vec<Step> {
    let seen = VcpuView { state: VcpuState::Queued, cpu: Some(HostCpu(0)), runqueue: Some(2), ..VcpuView::default() };
    let event = PauseEvent {
        source: VcpuIndex(0),
        owner: Some(VcpuIndex(1)),
        interrupted: None,
        progress: Some(1),
        named_since_entry: false,
        descheduled: false,
    };
    let step = |changed| Step {
        event,
        changed,
        seen,
        outcome: YieldOutcome::Boosted,
        parked: true,
        pause_ns: 80_000,
        utilisation: None,
    };
    vec![step(0), step(1), step(1)]
}

#[test]
fn replay_names_the_first_decision_that_differs() {
    let config = PauseConfig::default();
    let steps = busy_pair();
    let mut view = HostView::new(16, Vec::new(), 2);
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&view, &config, &mut bytes);
    let mut state = PauseState::new(16);
    for (step, now) in steps.iter().zip([Nanos(1), Nanos(2), Nanos(3)]) {
        view.set(VcpuIndex(step.changed), step.seen);
        let mut decision = decide(&step.event, &view, &mut state, &config, now);
        if now == Nanos(2) {
            decision.act = Act::Spin;
        }
        writer.decision(&step.event, &view, &decision, now, &mut bytes);
    }
    let mismatch = replay(&bytes).unwrap().mismatch.expect("the second decision was changed");
    assert_eq!((mismatch.number, mismatch.now, mismatch.event), (1, Nanos(2), steps[1].event));
    assert_eq!(mismatch.logged.act, Act::Spin);
    assert_ne!(mismatch.decided.act, Act::Spin);
}

#[test]
fn every_damage_has_its_own_error() {
    let (good, _) = record(&busy_pair(), &PauseConfig::default());
    assert_eq!(replay(b"PNG").unwrap_err(), LogError::NotALog);
    let mut other = good.clone();
    other[4] = VERSION + 1;
    assert_eq!(replay(&other).unwrap_err(), LogError::Version { found: VERSION + 1 });
    let mut unknown = good.clone();
    unknown.push(9);
    unknown.push(0);
    assert_eq!(replay(&unknown).unwrap_err(), LogError::UnknownTag { what: "record type", value: 9, at: good.len() });
    let mut bad = good.clone();
    bad[6] = 0; // bail_after
    assert!(matches!(replay(&bad).unwrap_err(), LogError::Config(_)));
    let mut long = good;
    long.extend([1, 0x80, 0]);
    assert!(matches!(replay(&long).unwrap_err(), LogError::BadNumber { .. }));
}

#[test]
fn an_event_takes_a_few_bytes() {
    let steps = busy_pair();
    let length = |steps: &[Step]| record(steps, &PauseConfig::default()).0.len();
    let last = length(&steps) - length(&steps[..2]);
    assert!(last <= 40, "a decision with its outcome takes {last} bytes");
}
