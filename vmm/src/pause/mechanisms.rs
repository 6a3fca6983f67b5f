// SPDX-License-Identifier: Apache-2.0
//! Which ways to give a CPU away are used, of those that were asked for.
//!
//! Invariant: what is asked for by name is granted or refused by name, never replaced.

use policy::pause::PauseConfig;

use super::effective::Grant;
use super::hypercall::{HYPERCALL, Hypercalls};
use super::trial::{Terms, YIELD, YieldTrial};
use crate::config::{MechanismChoice, PauseMode, PausePlan};
use crate::host::facts;
use crate::report::KvmKind;

/// The plan's parameters with the mechanisms that the host grants, and what is to be said of each.
pub(super) fn grant(
    plan: &PausePlan,
    trial: &YieldTrial,
    hypercalls: &Hypercalls,
    terms: &Terms,
) -> (PauseConfig, Vec<Grant>) {
    let mut config = plan.policy;
    trial.make_at_once(terms);
    if plan.mode != PauseMode::Act {
        return (config, vec![Grant::unasked("none", format!("--pause {} does nothing", plan.mode))]);
    }
    let asked = |which| plan.mechanism == MechanismChoice::Auto || plan.mechanism == which;
    let unasked = |name| Grant::unasked(name, format!("--pause-mechanism {}", plan.mechanism));
    let tried = trial.grant_under(terms);
    let sched_yield = if asked(MechanismChoice::Yield) { tried } else { Grant::unasked(YIELD, tried.why) };
    let park = if asked(MechanismChoice::Park) { Grant::yes("park", "futex") } else { unasked("park") };
    // A decision log has the mechanisms in front of the decisions, so what is not known by then is not used.
    let logged = plan.decision_log.is_some();
    let stands_in = plan.mechanism == MechanismChoice::Auto && logged && !sched_yield.granted;
    if plan.mechanism == MechanismChoice::Hypercall || stands_in {
        hypercalls.make_trial_at_once();
    }
    let hypercall =
        if asked(MechanismChoice::Hypercall) { hypercalls.grant(plan.mechanism) } else { unasked(HYPERCALL) };
    config.mechanisms.sched_yield = sched_yield.granted;
    config.mechanisms.park = park.granted;
    config.mechanisms.pause_exits = facts::kvm_kind() != KvmKind::Software;
    config.mechanisms.hypercall = hypercalls.are_useful() || !logged && hypercalls.may_be_tried();
    (config, vec![sched_yield, park, hypercall])
}

/// When `sched_yield` is probed: at once if a decision log is to say what came of it.
pub(super) fn terms(plan: &PausePlan, vcpus: usize) -> Terms {
    let asked = matches!(plan.mechanism, MechanismChoice::Auto | MechanismChoice::Yield);
    if plan.mode != PauseMode::Act || !asked {
        return Terms::skipped(format!("with --pause {} --pause-mechanism {}", plan.mode, plan.mechanism));
    }
    if vcpus == 1 {
        return Terms::skipped("with one vCPU".to_owned());
    }
    Terms { skipped: None, withdraws: plan.mechanism == MechanismChoice::Auto, at_once: plan.decision_log.is_some() }
}
