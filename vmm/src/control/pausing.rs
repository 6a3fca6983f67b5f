// SPDX-License-Identifier: Apache-2.0
//! The pause handling as the API tells of it: asked for, granted, and why; and the latest decisions.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use api::wire::{Act, Decision, Decisions, Generation, Grant, Pair, Parameter, Pause, PauseChange, PauseMode};
use policy::pause::PauseConfig;
use topology::id::VcpuIndex;

use super::view::View;
use crate::config::{self, SourceParameters};
use crate::pause::clock;
use crate::pause::control::Change;
use crate::pause::effective;
use crate::pause::recent::{Remembered, What};
use crate::pause::seat::Seat;

/// Told to the guest by CPUID when it boots.
const AT_BOOT_ALONE: &str = "port_spins";

impl View {
    /// The pause handling.
    pub(super) fn pause_told(&self, generation: Generation) -> Pause {
        let effective = self.pause.effective();
        let grants = |grants: Vec<effective::Grant>| grants.into_iter().map(grant).collect();
        Pause {
            generation,
            mode: mode_of(&effective.mode),
            mechanism: effective.mechanism,
            sources: grants(effective.sources),
            mechanisms: grants(effective.mechanisms),
            views: grants(effective.views),
            unseen: effective.unseen,
            parameters: self.parameters(&effective.parameters),
        }
    }

    fn parameters(&self, used: &BTreeMap<String, u64>) -> BTreeMap<String, Parameter> {
        let policy = PauseConfig::default().parameters();
        let sources = SourceParameters::default().parameters();
        let told = policy.iter().chain(&sources).map(|&(name, default, least, most)| {
            let granted = used.get(name).copied().unwrap_or(default);
            let who = self.who_set(name);
            let why = who.unwrap_or("default").to_owned();
            let asked = who.map(|_| granted);
            let at_run_time = name != AT_BOOT_ALONE;
            (name.to_owned(), Parameter { asked, granted, least, most, why, at_run_time })
        });
        told.collect()
    }

    /// Notes that parameters were set through the API.
    pub(super) fn note_set(&self, names: impl IntoIterator<Item = String>) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            set.retain(|(known, _)| *known != name);
            set.push((name, "api"));
        }
    }

    /// Who yielded to whom, sorted.
    fn pairs(&self) -> Vec<Pair> {
        let of_one = |(from, seat): (VcpuIndex, &Seat)| {
            let mut pairs: Vec<Pair> = seat.partners().counts().map(|(to, yields)| Pair { from, to, yields }).collect();
            pairs.sort_by_key(|pair| pair.to);
            pairs
        };
        (0..).map(VcpuIndex).zip(self.driver.seats()).flat_map(of_one).collect()
    }

    /// The latest `limit` decisions; `started_ns` is when the guest started, on [`clock`].
    pub(super) fn decisions_told(&self, limit: usize, started_ns: u64) -> Decisions {
        let seen = self.driver.recent().seen(limit);
        Decisions {
            total: seen.total,
            latest: seen.latest.iter().map(|one| decision(one, started_ns)).collect(),
            pairs: self.pairs(),
        }
    }
}

fn grant(grant: effective::Grant) -> Grant {
    let effective::Grant { name, asked, granted, why, remedy } = grant;
    Grant { name, asked, granted, why, remedy }
}

fn decision(one: &Remembered, started_ns: u64) -> Decision {
    let (act, how, reason) = match one.what {
        What::Yield(how) => (Act::YieldTo, Some(how.to_owned()), None),
        What::Park => (Act::Park, None, None),
        What::Spin => (Act::Spin, None, None),
        What::Bail(reason) => (Act::Bail, None, Some(reason.name().to_owned())),
    };
    Decision {
        number: one.number,
        at_ns: one.at.0.saturating_sub(started_ns),
        vcpu: one.vcpu,
        owner: one.owner,
        act,
        target: one.target,
        how,
        class: one.class.map(|class| class.name().to_owned()),
        reason,
        outcome: one.outcome.map(|outcome| outcome.name().to_owned()),
    }
}

/// The moment that decisions are counted from.
pub(super) fn started_ns(since: Option<std::time::Instant>) -> u64 {
    let ago = since.map_or(0, |since| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    clock::now().0.saturating_sub(ago)
}

fn mode_of(name: &str) -> PauseMode {
    match name {
        "off" => PauseMode::Off,
        "kernel" => PauseMode::Kernel,
        "observe" => PauseMode::Observe,
        _ => PauseMode::Act,
    }
}

/// A change as the pause handling takes it; the name of a mechanism that does not exist is the error.
pub(super) fn change(wanted: &PauseChange) -> Result<Change, String> {
    use clap::ValueEnum;
    let mode = wanted.mode.map(|mode| match mode {
        PauseMode::Off => config::PauseMode::Off,
        PauseMode::Kernel => config::PauseMode::Kernel,
        PauseMode::Observe => config::PauseMode::Observe,
        PauseMode::Act => config::PauseMode::Act,
    });
    let mechanism =
        wanted.mechanism.as_deref().map(|name| config::MechanismChoice::from_str(name, false)).transpose()?;
    Ok(Change { mode, source: None, mechanism, parameters: wanted.parameters.clone().unwrap_or_default() })
}

/// Whether a parameter can be changed while a guest runs.
pub(super) fn is_of_the_boot(name: &str) -> bool {
    name == AT_BOOT_ALONE
}
