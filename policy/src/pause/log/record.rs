// SPDX-License-Identifier: Apache-2.0
//! The parts of a record, each with its writer and its reader side by side.
//!
//! Invariant: `take_x` reads exactly what `put_x` wrote.

use topology::id::{HostCpu, VcpuIndex};

use super::super::decision::{Act, Class, Decision, How, PauseEvent, Reason, YieldOutcome};
use super::super::state::OutcomeEvent;
use super::super::view::{VcpuState, VcpuView};
use super::wire::{Put, Take};
use super::{LogError, Mechanisms, PauseConfig};

pub(super) const DECISION: u8 = 1;
pub(super) const OUTCOME: u8 = 2;
pub(super) const CHANGED: u8 = 3;

const STATES: [VcpuState; 6] = [
    VcpuState::Stopped,
    VcpuState::Unknown,
    VcpuState::Running,
    VcpuState::Queued,
    VcpuState::Halted,
    VcpuState::Parked,
];
const IN_KERNEL: [Option<bool>; 3] = [None, Some(false), Some(true)];

const SPIN: u8 = 0;
const BAIL: u8 = 1;
const PARK: u8 = 2;
const SCHED_YIELD: u8 = 3;
const WAKE: u8 = 4;
const WAKE_THEN_YIELD: u8 = 5;
const WAKE_AND_PARK: u8 = 6;
const HYPERCALL: u8 = 7;
const YIELD: u8 = 8;
const ACTS: [u8; 9] = [SPIN, BAIL, PARK, SCHED_YIELD, WAKE, WAKE_THEN_YIELD, WAKE_AND_PARK, HYPERCALL, YIELD];

fn flags<const N: usize>(bits: [bool; N]) -> u8 {
    bits.into_iter().enumerate().fold(0, |all, (at, bit)| all | u8::from(bit) << at)
}

fn flag(byte: u8, at: u8) -> bool {
    byte >> at & 1 == 1
}

fn take_flags(take: &mut Take<'_>, count: u8, what: &'static str) -> Result<u8, LogError> {
    let at = take.at;
    let value = take.byte()?;
    if value >> count != 0 { Err(LogError::UnknownTag { what, value, at }) } else { Ok(value) }
}

pub(super) fn put_config(put: &mut Put<'_>, config: &PauseConfig) {
    let Mechanisms { sched_yield, park, hypercall, pause_exits } = config.mechanisms;
    put.byte(flags([sched_yield, park, hypercall, pause_exits]));
    for (_, value, _, _) in config.parameters() {
        put.number(value);
    }
}

pub(super) fn take_config(take: &mut Take<'_>) -> Result<PauseConfig, LogError> {
    let granted = take_flags(take, 4, "mechanisms")?;
    let [sched_yield, park, hypercall, pause_exits] = [0, 1, 2, 3].map(|at| flag(granted, at));
    Ok(PauseConfig {
        mechanisms: Mechanisms { sched_yield, park, hypercall, pause_exits },
        bail_after: take.small()?,
        backoff_base_ns: take.number()?,
        backoff_max_ns: take.number()?,
        park_named_ns: take.number()?,
        park_unnamed_ns: take.number()?,
        scan_limit: take.small()?,
        scan_imbalance_pct: take.small()?,
        credit_ns: take.number()?,
        credit_window_ns: take.number()?,
        turn_every: take.small()?,
        epoch_ns: take.number()?,
        stretch_epochs: take.small()?,
        first_trial_epochs: take.small()?,
        hysteresis_sixteenths: take.small()?,
        drop_sixteenths: take.small()?,
        park_max_ns: take.number()?,
        park_turn_ns: take.number()?,
        first_in_line_ns: take.number()?,
        park_halvings: take.small()?,
        blind_vcpus_per_cpu: take.small()?,
    })
}

pub(super) fn put_event(put: &mut Put<'_>, event: &PauseEvent) {
    put.vcpu(event.source);
    put.optional(event.owner.map(|v| v.0));
    put.optional(event.interrupted.map(|v| v.0));
    put.optional(event.progress);
    put.byte(flags([event.descheduled, event.named_since_entry]));
}

pub(super) fn take_event(take: &mut Take<'_>) -> Result<PauseEvent, LogError> {
    let source = take.vcpu()?;
    let owner = take.optional()?.map(VcpuIndex);
    let interrupted = take.optional()?.map(VcpuIndex);
    let progress = take.optional()?;
    let set = take_flags(take, 2, "event flags")?;
    Ok(PauseEvent { source, owner, interrupted, progress, descheduled: flag(set, 0), named_since_entry: flag(set, 1) })
}

pub(super) fn put_vcpu(put: &mut Put<'_>, seen: &VcpuView) {
    put.byte(position(&STATES, &seen.state));
    put.byte(position(&IN_KERNEL, &seen.in_kernel));
    put.byte(flags([seen.spinning, seen.pending_interrupt, seen.preempted, seen.waiting_since.is_some()]));
    put.optional(seen.cpu.map(|c| c.0));
    put.optional(seen.runqueue);
    if let Some(since) = seen.waiting_since {
        put.time(since);
    }
}

pub(super) fn take_vcpu(take: &mut Take<'_>) -> Result<VcpuView, LogError> {
    let state = take.variant(&STATES, "vCPU state")?;
    let in_kernel = take.variant(&IN_KERNEL, "kernel mode")?;
    let set = take_flags(take, 4, "vCPU flags")?;
    Ok(VcpuView {
        state,
        spinning: flag(set, 0),
        pending_interrupt: flag(set, 1),
        preempted: flag(set, 2),
        in_kernel,
        cpu: take.optional()?.map(HostCpu),
        runqueue: take.optional()?,
        waiting_since: if flag(set, 3) { Some(take.time()?) } else { None },
    })
}

pub(super) fn put_decision(put: &mut Put<'_>, decision: &Decision) {
    put.byte(decision.class.map_or(0, |c| position(Class::ALL, &c) + 1));
    put.time(decision.quiet_until);
    match decision.act {
        Act::Spin => put.byte(SPIN),
        Act::Yield => put.byte(YIELD),
        Act::Bail(reason) => {
            put.byte(BAIL);
            put.byte(position(Reason::ALL, &reason));
        }
        Act::Park { until } => {
            put.byte(PARK);
            put.time(until);
        }
        Act::YieldTo { target, how } => {
            put.byte(match how {
                How::SchedYield => SCHED_YIELD,
                How::Wake => WAKE,
                How::WakeThenYield => WAKE_THEN_YIELD,
                How::WakeAndPark { .. } => WAKE_AND_PARK,
                How::Hypercall => HYPERCALL,
            });
            put.vcpu(target);
            if let How::WakeAndPark { until } = how {
                put.time(until);
            }
        }
    }
}

pub(super) fn take_decision(take: &mut Take<'_>) -> Result<Decision, LogError> {
    let at = take.at;
    let value = take.byte()?;
    let class = match value.checked_sub(1) {
        None => None,
        Some(n) => Some(*Class::ALL.get(usize::from(n)).ok_or(LogError::UnknownTag { what: "class", value, at })?),
    };
    let quiet_until = take.time()?;
    let act = match take.variant(&ACTS, "action")? {
        SPIN => Act::Spin,
        YIELD => Act::Yield,
        BAIL => Act::Bail(take.variant(Reason::ALL, "reason")?),
        PARK => Act::Park { until: take.time()? },
        tag => Act::YieldTo { target: take.vcpu()?, how: take_how(tag, take)? },
    };
    Ok(Decision { act, class, quiet_until })
}

fn take_how(tag: u8, take: &mut Take<'_>) -> Result<How, LogError> {
    Ok(match tag {
        SCHED_YIELD => How::SchedYield,
        WAKE => How::Wake,
        WAKE_THEN_YIELD => How::WakeThenYield,
        WAKE_AND_PARK => How::WakeAndPark { until: take.time()? },
        _ => How::Hypercall,
    })
}

pub(super) fn put_outcome(put: &mut Put<'_>, event: &OutcomeEvent) {
    put.vcpu(event.source);
    put.optional(event.target.map(|v| v.0));
    put.byte(position(YieldOutcome::ALL, &event.outcome));
    put.byte(flags([event.parked]));
    put.number(event.donated_ns);
}

pub(super) fn take_outcome(take: &mut Take<'_>) -> Result<OutcomeEvent, LogError> {
    Ok(OutcomeEvent {
        source: take.vcpu()?,
        target: take.optional()?.map(VcpuIndex),
        outcome: take.variant(YieldOutcome::ALL, "outcome")?,
        parked: flag(take_flags(take, 1, "outcome flags")?, 0),
        donated_ns: take.number()?,
    })
}

fn position<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let found = all.iter().position(|v| v == value).expect("invariant: the list holds every variant");
    u8::try_from(found).expect("invariant: no enum of the log has 256 variants")
}
