// SPDX-License-Identifier: Apache-2.0
//! Errors of the monitor's rooms as refusals of the API: whose fault it is, and what to do.

use api::monitor::Refusal;
use api::wire::ThresholdRange;
use policy::placement::Rules;
use topology::id::VcpuIndex;

use super::places::Contradiction;
use crate::config::{ConfigError, ParseError, ValueError, nearest_name};
use crate::pause::control::ChangeError;
use crate::placement::control::ControlError;
use crate::vm::error::AssemblyError;
use crate::vm::running;

/// A value that cannot be; the last part of the message, behind a semicolon, is what to do.
pub(super) fn invalid(field: &str, message: &str) -> Refusal {
    let (message, hint) = halves(message);
    Refusal::Invalid { field: field.to_owned(), message, hint }
}

/// A threshold that cannot be.
pub(super) fn out_of_range(range: ThresholdRange, value: u64) -> Refusal {
    let ThresholdRange { name, least, most, .. } = range;
    invalid(name, &format!("{value} is outside {least} to {most}; choose a value in that range"))
}

/// The host's refusal, likewise.
pub(super) fn host(what: &str, message: &str) -> Refusal {
    let (cause, hint) = halves(message);
    Refusal::HostRefused { what: what.to_owned(), cause, hint }
}

/// Our messages end with the next step: "the thing: the cause; the next step".
fn halves(message: &str) -> (String, Option<String>) {
    match message.split_once("; ") {
        Some((cause, hint)) => (cause.to_owned(), Some(hint.to_owned())),
        None => (message.to_owned(), None),
    }
}

pub(super) fn of_parse(error: &ParseError) -> Refusal {
    match error {
        ParseError::UnknownKey { unknown, .. } => {
            let field = unknown.table.map_or_else(|| unknown.key.clone(), |table| format!("{table}.{}", unknown.key));
            Refusal::UnknownField { field, nearest: unknown.nearest.map(str::to_owned) }
        }
        ParseError::Value { message, .. } => invalid("configuration", message),
    }
}

pub(super) fn of_config(error: &ConfigError) -> Refusal {
    let message = error.to_string();
    let field = message.split([' ', ':']).next().unwrap_or_default().trim_start_matches("--").replace('-', "_");
    invalid(if crate::config::known_keys().contains(&field.as_str()) { &field } else { "configuration" }, &message)
}

pub(super) fn of_assembly(error: &AssemblyError) -> Refusal {
    match error {
        AssemblyError::Payload(_) | AssemblyError::Shape(_) | AssemblyError::Apic(_) => {
            invalid("configuration", &error.to_string())
        }
        _ => host("the machine", &error.to_string()),
    }
}

pub(super) fn of_pause(error: &ChangeError) -> Refusal {
    match error {
        ChangeError::Parameter(ValueError::UnknownKey { key, nearest, .. }) => {
            Refusal::UnknownField { field: format!("parameters.{key}"), nearest: nearest.clone() }
        }
        ChangeError::Parameter(error) => invalid("parameters", &error.to_string()),
        ChangeError::Mechanism { name, why } => {
            Refusal::NotAtRunTime { what: format!("mechanism {name}"), why: why.clone(), hint: None }
        }
        ChangeError::Source { name, why } => {
            Refusal::NotAtRunTime { what: format!("source {name}"), why: why.clone(), hint: None }
        }
        ChangeError::Helper(_) => host("the pause handling", &error.to_string()),
    }
}

pub(super) fn of_placement(error: &ControlError) -> Refusal {
    match error {
        ControlError::NoSuchVcpu { vcpu, vcpus } => {
            Refusal::NoSuchVcpu { index: *vcpu, count: u32::try_from(*vcpus).unwrap_or(u32::MAX) }
        }
        ControlError::NotUsable { cpus, usable, .. } => Refusal::Invalid {
            field: "affinity".to_owned(),
            message: format!("host CPUs {cpus} cannot be used"),
            hint: Some(format!("name some of {usable}")),
        },
        ControlError::Decision(error) => invalid("placement", &error.to_string()),
        ControlError::Ended => Refusal::Ending,
        ControlError::Host(_) | ControlError::Refused { .. } => host("the placement", &error.to_string()),
    }
}

pub(super) fn of_contradiction(contradiction: &Contradiction) -> Refusal {
    match contradiction {
        Contradiction::NoSuchRule(name) => Refusal::UnknownField {
            field: format!("rules.{name}"),
            nearest: nearest_name(name, Rules::NAMES).map(str::to_owned),
        },
        Contradiction::PinWithoutMode => invalid("pin", "only mode pin names CPUs; send \"mode\": \"pin\" with it"),
        Contradiction::NoCpus => invalid("pin", "mode pin needs CPUs; send \"pin\": \"0-3\" with it"),
    }
}

/// A vCPU thread did not do what it was asked to.
pub(super) fn of_threads(what: &str, error: &running::ControlError) -> Refusal {
    match error {
        running::ControlError::NoAnswer { .. } | running::ControlError::Overtaken { .. } => {
            Refusal::Busy { what: what.to_owned() }
        }
        running::ControlError::Finished { .. } => Refusal::Ending,
    }
}

/// There is no such vCPU.
pub(super) fn no_such_vcpu(index: VcpuIndex, count: usize) -> Refusal {
    Refusal::NoSuchVcpu { index, count: u32::try_from(count).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn a_mistyped_key_is_named_with_the_nearest_one() {
        let error = parse("{\"cpu\": 4}").unwrap_err();
        let expected = Refusal::UnknownField { field: "cpu".to_owned(), nearest: Some("cpus".to_owned()) };
        assert_eq!(of_parse(&error), expected);
    }

    #[test]
    fn a_machine_that_cannot_be_is_refused_with_its_key_and_the_next_step() {
        let error = parse("{\"memory\": 4097}").unwrap().resolve().unwrap_err();
        let Refusal::Invalid { field, hint, .. } = of_config(&error) else { panic!("{error}") };
        assert_eq!((field.as_str(), hint.is_some()), ("memory", true), "{error}");
    }
}
