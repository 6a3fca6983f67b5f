// SPDX-License-Identifier: Apache-2.0
//! What the fake machine does when it is asked for a change: the same refusals as the monitor's, and nothing else.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde_json::Value;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, VcpuIndex};

use super::{FakeMonitor, Machine};
use crate::monitor::{Asked, Change, Refusal};
use crate::wire::{
    Configuration, EventKind, Exit, Generation, PauseChange, PauseMode, PlacementChange, PlacementMode,
    ThresholdsChange, VmState, WantedState,
};

/// Keys of a configuration that this machine knows; the monitor has more.
const KEYS: [&str; 3] = ["cpus", "numa", "memory"];
/// Parameters of the pause handling, with their least, greatest and default values.
pub(super) const PARAMETERS: [(&str, u64, u64, u64); 3] =
    [("bail_after", 1, 64, 3), ("credit_ns", 0, 1_000_000_000, 3_000_000), ("port_spins", 1, 1_000_000, 1000)];
/// Rules of placement that can be switched.
pub(super) const RULES: [&str; 4] = ["house", "numa", "whole_core", "cluster"];

/// What can be changed while the machine exists.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) pause: PauseMode,
    pub(super) mechanism: String,
    pub(super) parameters: BTreeMap<String, u64>,
    pub(super) placement: PlacementMode,
    pub(super) pin: Option<CpuSet<HostCpu>>,
    pub(super) rules: BTreeMap<String, bool>,
    pub(super) affinities: BTreeMap<VcpuIndex, CpuSet<HostCpu>>,
    pub(super) thresholds: ThresholdsChange,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pause: PauseMode::Act,
            mechanism: "auto".to_owned(),
            parameters: BTreeMap::new(),
            placement: PlacementMode::Auto,
            pin: None,
            rules: RULES.iter().map(|rule| ((*rule).to_owned(), true)).collect(),
            affinities: BTreeMap::new(),
            thresholds: ThresholdsChange::default(),
        }
    }
}

impl FakeMonitor {
    pub(super) fn carry_out(&self, change: Change, expected: Option<Generation>) -> Asked {
        if self.ending.load(Ordering::SeqCst) {
            return Err(Refusal::Ending);
        }
        let mut slot = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Change::Create(configuration) = change {
            if slot.is_some() {
                return Err(Refusal::AlreadyExists);
            }
            Refusal::if_stale(Generation::default(), expected)?;
            let machine = Machine::create(configuration)?;
            self.tell_state(&machine, "created through the API");
            return Ok(slot.insert(machine).generation);
        }
        let machine = slot.as_mut().ok_or(Refusal::NoVm)?;
        Refusal::if_stale(machine.generation, expected)?;
        let before = machine.state;
        let what = self.apply(machine, change)?;
        if let Some(what) = what {
            machine.generation.0 += 1;
            let settings = EventKind::SettingsChanged { what: what.to_owned(), generation: machine.generation };
            if machine.state == before {
                self.events.publish(machine.ran_ns, settings);
            } else {
                self.tell_state(machine, "asked for through the API");
            }
        }
        Ok(machine.generation)
    }

    fn tell_state(&self, machine: &Machine, why: &str) {
        let (state, generation) = (machine.state, machine.generation);
        self.events.publish(machine.ran_ns, EventKind::StateChanged { state, generation, why: why.to_owned() });
    }

    /// Makes a change; what was changed, if anything was.
    fn apply(&self, machine: &mut Machine, change: Change) -> Result<Option<&'static str>, Refusal> {
        match change {
            Change::Create(_) => Err(Refusal::AlreadyExists),
            Change::State(wanted) => machine.go_to(wanted),
            Change::PowerButton => {
                machine.running("the power button")?;
                machine.end("guest powered off");
                Ok(Some("state"))
            }
            Change::Reset => {
                machine.running("a reset")?;
                machine.end("guest reset");
                Ok(Some("state"))
            }
            Change::Nmi => machine.running("an NMI").map(|()| None),
            Change::Affinity { .. } | Change::Placement(_) | Change::Pause(_) | Change::Thresholds(_)
                if machine.state == VmState::Stopped =>
            {
                Err(Refusal::WrongState { state: machine.state, what: "a change of settings".to_owned() })
            }
            Change::Affinity { vcpu, cpus } => {
                let count = machine.shape.vcpu_count();
                if vcpu.0 >= count {
                    return Err(Refusal::NoSuchVcpu { index: vcpu, count });
                }
                self.check_cpus("affinity", &cpus)?;
                machine.settings.affinities.insert(vcpu, cpus);
                Ok(Some("affinity"))
            }
            Change::Placement(change) => self.place(machine, change).map(|()| Some("placement")),
            Change::Pause(change) => machine.set_pause(change).map(|()| Some("pause")),
            Change::Thresholds(change) => match change.out_of_range() {
                Some((range, value)) => Err(Refusal::Invalid {
                    field: range.name.to_owned(),
                    message: format!("{value} is not between {} and {}", range.least, range.most),
                    hint: None,
                }),
                None => {
                    machine.settings.thresholds = change.over(machine.settings.thresholds);
                    Ok(Some("thresholds"))
                }
            },
        }
    }

    fn check_cpus(&self, field: &str, cpus: &CpuSet<HostCpu>) -> Result<(), Refusal> {
        let wrong = |message: String| {
            let hint = Some(format!("name some of {}", self.host.usable()));
            Err(Refusal::Invalid { field: field.to_owned(), message, hint })
        };
        if cpus.is_empty() {
            return wrong("the list is empty".to_owned());
        }
        match cpus.iter().find(|cpu| !self.host.usable().contains(*cpu)) {
            Some(cpu) => wrong(format!("host CPU {cpu} cannot be used")),
            None => Ok(()),
        }
    }

    fn place(&self, machine: &mut Machine, change: PlacementChange) -> Result<(), Refusal> {
        let mode = change.mode.unwrap_or(machine.settings.placement);
        let invalid = |field: &str, message: &str| {
            Err(Refusal::Invalid { field: field.to_owned(), message: message.to_owned(), hint: None })
        };
        if change.pin.is_some() && mode != PlacementMode::Pin {
            return invalid("pin", "only mode pin names CPUs");
        }
        if mode == PlacementMode::Pin && change.pin.is_none() && machine.settings.pin.is_none() {
            return invalid("pin", "mode pin needs CPUs");
        }
        if let Some(cpus) = &change.pin {
            self.check_cpus("pin", cpus)?;
        }
        let rules = change.rules.unwrap_or_default();
        known(rules.keys(), "rules", &RULES)?;
        machine.settings.rules.extend(rules);
        machine.settings.pin =
            if mode == PlacementMode::Pin { change.pin.or(machine.settings.pin.take()) } else { None };
        machine.settings.placement = mode;
        machine.settings.affinities.clear();
        Ok(())
    }
}

fn known<'a>(names: impl Iterator<Item = &'a String>, table: &str, known: &[&str]) -> Result<(), Refusal> {
    for name in names {
        if !known.contains(&name.as_str()) {
            let nearest = known.iter().find(|known| known.starts_with(name.get(..3).unwrap_or("-")));
            return Err(Refusal::UnknownField {
                field: format!("{table}.{name}"),
                nearest: nearest.map(ToString::to_string),
            });
        }
    }
    Ok(())
}

impl Machine {
    pub(super) fn create(configuration: Configuration) -> Result<Self, Refusal> {
        known(configuration.0.keys(), "configuration", &KEYS)?;
        let count = |key: &str| match configuration.0.get(key) {
            None => Ok(1),
            Some(Value::Number(number)) => number.as_u64().and_then(|number| u32::try_from(number).ok()).ok_or(()),
            Some(Value::Object(table)) => {
                table.get("count").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).ok_or(())
            }
            Some(_) => Err(()),
        };
        let invalid = |field: &str, message: String| Refusal::Invalid { field: field.to_owned(), message, hint: None };
        let cpus = count("cpus").map_err(|()| invalid("cpus", "is not a number of vCPUs".to_owned()))?;
        let nodes = count("numa").map_err(|()| invalid("numa", "is not a number of nodes".to_owned()))?;
        let shape = Self::shape_of(cpus, nodes).map_err(|error| invalid("cpus", error))?;
        Ok(Self {
            configuration,
            shape,
            state: VmState::Created,
            generation: Generation(1),
            ran_ns: 0,
            exit: None,
            settings: Settings::default(),
        })
    }

    fn running(&self, what: &str) -> Result<(), Refusal> {
        if self.state == VmState::Running {
            return Ok(());
        }
        Err(Refusal::WrongState { state: self.state, what: what.to_owned() })
    }

    fn go_to(&mut self, wanted: WantedState) -> Result<Option<&'static str>, Refusal> {
        if !wanted.is_reached_from(self.state) {
            return Err(Refusal::WrongState { state: self.state, what: format!("state {}", wanted.reached()) });
        }
        if self.state == wanted.reached() {
            return Ok(None);
        }
        match wanted {
            WantedState::Running | WantedState::Paused => self.state = wanted.reached(),
            WantedState::Stopped => self.end("stopped by the operator"),
        }
        Ok(Some("state"))
    }

    fn end(&mut self, reason: &str) {
        self.state = VmState::Stopped;
        self.exit = Some(Exit { status: 0, reason: reason.to_owned() });
    }

    fn set_pause(&mut self, change: PauseChange) -> Result<(), Refusal> {
        let parameters = change.parameters.unwrap_or_default();
        known(parameters.keys(), "parameters", &PARAMETERS.map(|(name, ..)| name))?;
        for (name, value) in &parameters {
            let range = PARAMETERS
                .iter()
                .find(|(known, ..)| known == name)
                .filter(|(_, least, most, _)| value < least || value > most);
            if let Some((_, least, most, _)) = range {
                return Err(Refusal::Invalid {
                    field: format!("parameters.{name}"),
                    message: format!("{value} is not between {least} and {most}"),
                    hint: None,
                });
            }
        }
        let mechanism = change.mechanism.unwrap_or_else(|| self.settings.mechanism.clone());
        if !["auto", "none", "yield", "park"].contains(&mechanism.as_str()) {
            return Err(Refusal::Invalid {
                field: "mechanism".to_owned(),
                message: format!("`{mechanism}` is not a mechanism"),
                hint: Some("write auto, none, yield or park".to_owned()),
            });
        }
        if change.mode == Some(PauseMode::Off) && self.settings.pause != PauseMode::Off {
            return Err(Refusal::NotAtRunTime {
                what: "mode off".to_owned(),
                why: "PAUSE exits are switched off before the first vCPU exists".to_owned(),
                hint: Some("use mode kernel".to_owned()),
            });
        }
        self.settings.pause = change.mode.unwrap_or(self.settings.pause);
        self.settings.mechanism = mechanism;
        self.settings.parameters.extend(parameters);
        Ok(())
    }
}
