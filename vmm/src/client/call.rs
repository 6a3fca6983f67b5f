// SPDX-License-Identifier: Apache-2.0
//! A call of the command line as a request: method, path, body. Pure, but for the machine that it is handed.

use std::path::Path;

use api::wire::{
    AffinityChange, PauseChange, PauseMode, PlacementChange, PlacementMode, StateChange, ThresholdsChange, WantedState,
};
use serde::Serialize;
use serde_json::Value;

use super::CallError;
use crate::config::client::{Call, PauseArgs, PlacementArgs, PlacementWord, ThresholdArgs};
use crate::config::{self, MachineConfig};

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl Ask {
    /// The request of a call; `machine` reads the file of one that creates.
    ///
    /// # Errors
    /// Those of `machine`.
    pub(super) fn of(
        call: &Call,
        machine: impl FnOnce(&Path) -> Result<MachineConfig, CallError>,
    ) -> Result<Self, CallError> {
        let state = |state| Self::change("PUT", "vm/state", &StateChange { state });
        Ok(match call {
            Call::Vm => Self::get("vm"),
            Call::Create { file } => Self::change("PUT", "vm", &machine(file)?)?,
            Call::Start | Call::Resume => state(WantedState::Running)?,
            Call::Pause => state(WantedState::Paused)?,
            Call::Stop => state(WantedState::Stopped)?,
            Call::PowerButton => Self::press("vm/power-button"),
            Call::Reset => Self::press("vm/reset"),
            Call::Nmi => Self::press("vm/nmi"),
            Call::Vcpus => Self::get("vcpus"),
            Call::Vcpu { index, affinity: None } => Self::get(&format!("vcpus/{index}")),
            Call::Vcpu { index, affinity: Some(affinity) } => {
                Self::change("PATCH", &format!("vcpus/{index}"), &AffinityChange { affinity: affinity.clone() })?
            }
            Call::Topology => Self::get("topology"),
            Call::Host => Self::get("host"),
            Call::Placement(args) if *args == PlacementArgs::default() => Self::get("placement"),
            Call::Placement(args) => Self::change("PATCH", "placement", &placement(args))?,
            Call::PauseLoops(args) if *args == PauseArgs::default() => Self::get("pause"),
            Call::PauseLoops(args) => Self::change("PATCH", "pause", &pause(args))?,
            Call::Thresholds(args) if *args == ThresholdArgs::default() => Self::get("thresholds"),
            Call::Thresholds(ThresholdArgs { pause_events_per_s, steal_permille }) => {
                let change =
                    ThresholdsChange { pause_events_per_s: *pause_events_per_s, steal_permille: *steal_permille };
                Self::change("PATCH", "thresholds", &change)?
            }
            Call::Stats => Self::get("stats"),
            Call::Decisions { limit } => Self::get(&format!("decisions?limit={limit}")),
            Call::Serial { .. } => Self::get("serial"),
            Call::Events { .. } => Self::get("events"),
            Call::Metrics => Self::get("metrics"),
            Call::Openapi => Self::get("openapi.json"),
        })
    }

    fn get(path: &str) -> Self {
        Self { method: "GET", path: format!("/api/v1/{path}"), body: None }
    }

    fn press(path: &str) -> Self {
        Self { method: "POST", ..Self::get(path) }
    }

    fn change(method: &'static str, path: &str, body: &impl Serialize) -> Result<Self, CallError> {
        Ok(Self { method, body: Some(serde_json::to_value(body)?), ..Self::get(path) })
    }
}

fn placement(args: &PlacementArgs) -> PlacementChange {
    PlacementChange {
        mode: args.mode.map(|mode| match mode {
            PlacementWord::Auto => PlacementMode::Auto,
            PlacementWord::Spread => PlacementMode::Spread,
            PlacementWord::Pack => PlacementMode::Pack,
            PlacementWord::None => PlacementMode::None,
            PlacementWord::Pin => PlacementMode::Pin,
        }),
        pin: args.pin.clone(),
        rules: (!args.rules.is_empty()).then(|| args.rules.iter().cloned().collect()),
    }
}

fn pause(args: &PauseArgs) -> PauseChange {
    PauseChange {
        mode: args.mode.map(|mode| match mode {
            config::PauseMode::Off => PauseMode::Off,
            config::PauseMode::Kernel => PauseMode::Kernel,
            config::PauseMode::Observe => PauseMode::Observe,
            config::PauseMode::Act => PauseMode::Act,
        }),
        mechanism: args.mechanism.clone(),
        parameters: (!args.parameters.is_empty()).then(|| args.parameters.iter().cloned().collect()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(call: &Call) -> (String, Option<Value>) {
        let Ask { method, path, body } =
            Ask::of(call, |_| config::parse("cpus = 2\n").map_err(CallError::Stdin)).unwrap();
        (format!("{method} {path}"), body)
    }

    #[test]
    fn what_is_not_given_is_not_sent() {
        assert_eq!(ask(&Call::Vm), ("GET /api/v1/vm".to_owned(), None));
        assert_eq!(ask(&Call::PauseLoops(PauseArgs::default())), ("GET /api/v1/pause".to_owned(), None));
        let args = PauseArgs { parameters: vec![("bail_after".to_owned(), 5)], ..PauseArgs::default() };
        let expected = Some(json!({"parameters": {"bail_after": 5}}));
        assert_eq!(ask(&Call::PauseLoops(args)), ("PATCH /api/v1/pause".to_owned(), expected));
        let args = PlacementArgs { mode: Some(PlacementWord::Pin), pin: "0-1".parse().ok(), rules: Vec::new() };
        let expected = Some(json!({"mode": "pin", "pin": "0-1"}));
        assert_eq!(ask(&Call::Placement(args)), ("PATCH /api/v1/placement".to_owned(), expected));
        let args = ThresholdArgs { steal_permille: Some(5), ..ThresholdArgs::default() };
        let expected = Some(json!({"steal_permille": 5}));
        assert_eq!(ask(&Call::Thresholds(args)), ("PATCH /api/v1/thresholds".to_owned(), expected));
        let created = ask(&Call::Create { file: "x".into() });
        assert_eq!(created, ("PUT /api/v1/vm".to_owned(), Some(json!({"cpus": 2}))));
    }

    #[test]
    fn a_machine_starts_and_resumes_by_the_same_word() {
        for call in [Call::Start, Call::Resume] {
            assert_eq!(ask(&call), ("PUT /api/v1/vm/state".to_owned(), Some(json!({"state": "running"}))));
        }
        assert_eq!(ask(&Call::Nmi), ("POST /api/v1/vm/nmi".to_owned(), None));
    }
}
