// SPDX-License-Identifier: Apache-2.0
//! Placement as the API tells of it, and what is asked of it.

use std::sync::PoisonError;

use api::wire::{Generation, Move, NodeMemory, PairCounts, Place, Placement, PlacementChange, PlacementMode, RunnerUp};
use policy::placement::{self, Decision, Mode, Rules};

use super::view::View;
use crate::config::{PlacementConfig, RulesOff};
use crate::placement::account;
use crate::placement::control::{self, PlacementState, VcpuPlace};

impl View {
    /// Where the machine is: as of now if its placement can be asked, else as it was when that was last possible.
    pub(super) fn placement_told(&self, generation: Generation) -> Placement {
        let state = self.placement.get().and_then(|handle| handle.as_ref().ok()).and_then(|handle| handle.state().ok());
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = state {
            *placed = Some(self.told_of(&state));
        }
        let told = placed.clone().unwrap_or_else(|| self.unplaced());
        Placement { generation, ..told }
    }

    fn told_of(&self, state: &PlacementState) -> Placement {
        let account = &state.account;
        let notes = self.remarks.iter().chain(&account.remarks).cloned();
        let memory = state.memory.iter().map(|node| NodeMemory {
            node: node.guest,
            policy: node.policy.to_string(),
            host_nodes: node.host_nodes.clone(),
        });
        let (mode, pin) = mode(&state.config.mode);
        Placement {
            generation: Generation::default(),
            mode,
            pin,
            exclusive: state.config.exclusive,
            rules: Rules::NAMES.into_iter().map(|name| (name.to_owned(), state.rules.is_on(name))).collect(),
            plan: state.vcpus.iter().map(place).collect(),
            memory: memory.collect(),
            claimed: state.claimed.clone(),
            other_threads: state.others.clone(),
            notes: notes.collect(),
            looks: account.looks,
            refused: account.refused,
            moves: account.moves.iter().map(|(rule, count)| (rule.to_string(), *count)).collect(),
            last_moves: account.last.iter().map(moved).collect(),
            host_changes: account.host_changes,
            pairs: PairCounts {
                tried: account.pairs.tried,
                helped: account.pairs.helped,
                undone: account.pairs.undone,
            },
            migrations: account.migrations.len() as u64,
            spent_ns: u64::try_from(account.spent.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Of a machine that has not been placed yet.
    fn unplaced(&self) -> Placement {
        let config = self.configuration.0.get("placement").and_then(|value| value.as_str());
        let config = config.and_then(|text| text.parse::<PlacementConfig>().ok()).unwrap_or_default();
        let (mode, pin) = mode(&config.mode);
        let off = self.configuration.0.get("placement_off").and_then(|value| value.as_str());
        let rules = off.and_then(|text| text.parse::<RulesOff>().ok()).unwrap_or_default().rules();
        let why = self.placement.get().and_then(|handle| handle.as_ref().err());
        Placement {
            generation: Generation::default(),
            mode,
            pin,
            exclusive: config.exclusive,
            rules: Rules::NAMES.into_iter().map(|name| (name.to_owned(), rules.is_on(name))).collect(),
            plan: Vec::new(),
            memory: Vec::new(),
            claimed: None,
            other_threads: None,
            notes: self.remarks.iter().chain(why).cloned().collect(),
            looks: 0,
            refused: 0,
            moves: std::collections::BTreeMap::new(),
            last_moves: Vec::new(),
            host_changes: 0,
            pairs: PairCounts::default(),
            migrations: 0,
            spent_ns: 0,
        }
    }
}

fn mode(mode: &Mode) -> (PlacementMode, Option<topology::cpu_set::CpuSet<topology::id::HostCpu>>) {
    match mode {
        Mode::Auto => (PlacementMode::Auto, None),
        Mode::Spread => (PlacementMode::Spread, None),
        Mode::Pack => (PlacementMode::Pack, None),
        Mode::None => (PlacementMode::None, None),
        Mode::Pin(cpus) => (PlacementMode::Pin, Some(cpus.clone())),
    }
}

fn runner_up(second: placement::RunnerUp) -> RunnerUp {
    RunnerUp { cpu: second.cpu, score: second.score }
}

fn place(place: &VcpuPlace) -> Place {
    let decision = place.decision.filter(|_| !place.held);
    Place {
        vcpu: place.vcpu,
        cpu: decision.map(|decision| decision.to),
        cpus: place.cpus.clone(),
        rule: if place.held { Some("held".to_owned()) } else { decision.map(|decision| decision.rule.to_string()) },
        score: decision.map(|decision| decision.score),
        runner_up: decision.and_then(|decision| decision.runner_up).map(runner_up),
    }
}

fn moved(one: &account::Move) -> Move {
    let Decision { vcpu, from, to, swap_with, rule, score, runner_up: second } = one.decision;
    Move {
        at_ms: u64::try_from(one.at.as_millis()).unwrap_or(u64::MAX),
        vcpu,
        from,
        to,
        swap_with,
        rule: rule.to_string(),
        score,
        runner_up: second.map(runner_up),
    }
}

/// A wish that contradicts itself.
pub(super) enum Contradiction {
    /// No rule has this name.
    NoSuchRule(String),
    /// CPUs are named, and the mode does not take any.
    PinWithoutMode,
    /// The mode needs CPUs, and none are named.
    NoCpus,
}

/// A change as placement takes it, over what holds now.
pub(super) fn change(
    wanted: &PlacementChange,
    now: &PlacementState,
) -> Result<control::PlacementChange, Contradiction> {
    let (before, pinned) = mode(&now.config.mode);
    let mode = wanted.mode.unwrap_or(before);
    let cpus = wanted.pin.clone().or(pinned);
    let mode = match mode {
        PlacementMode::Pin => Mode::Pin(cpus.filter(|cpus| !cpus.is_empty()).ok_or(Contradiction::NoCpus)?),
        _ if wanted.pin.is_some() => return Err(Contradiction::PinWithoutMode),
        PlacementMode::Auto => Mode::Auto,
        PlacementMode::Spread => Mode::Spread,
        PlacementMode::Pack => Mode::Pack,
        PlacementMode::None => Mode::None,
    };
    // Nothing is kept for a machine that is placed by the kernel.
    let exclusive = now.config.exclusive && mode != Mode::None;
    let asked = wanted.mode.is_some() || wanted.pin.is_some();
    let mut rules = now.rules;
    for (name, on) in wanted.rules.iter().flatten() {
        if !rules.switch(name, *on) {
            return Err(Contradiction::NoSuchRule(name.clone()));
        }
    }
    Ok(control::PlacementChange {
        placement: asked.then_some(PlacementConfig { mode, exclusive }),
        rules: wanted.rules.as_ref().map(|_| rules),
    })
}
