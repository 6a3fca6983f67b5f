// SPDX-License-Identifier: Apache-2.0
//! What can be seen of one machine from outside its threads: handles that outlive it and stop nothing.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use api::wire::{Configuration, Placement};
use topology::guest::GuestTopology;
use topology::host::HostTopology;
use topology::id::{HostCpu, HostNode};

use crate::config::{MachineConfig, PauseParameter};
use crate::host::sysfs;
use crate::kvm::stats::{Stats, StatsError};
use crate::ledger::growing::Growing;
use crate::pause::control::Control;
use crate::pause::driver::Driver;
use crate::placement::control::PlacementHandle;
use crate::vcpu::thread::VcpuHandle;
use crate::vcpu::watch::VcpuWatch;
use crate::vm::accesses::Buses;
use crate::vm::assembly::Assembled;
use crate::vm::console::Console;
use crate::vm::end::EndNote;
use crate::vm::parts::PowerRegisters;

/// A machine, as far as it can be looked at.
pub struct View {
    pub(super) configuration: Configuration,
    pub(super) topology: GuestTopology,
    pub(super) vcpus: Vec<VcpuWatch>,
    /// What was told of each vCPU's ledger.
    pub(super) told: Mutex<Vec<Growing>>,
    pub(super) driver: Arc<Driver>,
    pub(super) pause: Control,
    /// Parameters of the pause handling that somebody set, and who.
    pub(super) set: Mutex<Vec<(String, &'static str)>>,
    /// There once it runs; the text says why there is none.
    pub(super) placement: OnceLock<Result<PlacementHandle, String>>,
    /// Placement as it was when it was last looked at.
    pub(super) placed: Mutex<Option<Placement>>,
    pub(super) remarks: Vec<String>,
    pub(super) stats: Result<Stats, StatsError>,
    pub(super) console: Arc<Console>,
    pub(super) power: Arc<PowerRegisters>,
    pub(super) buses: Arc<Buses>,
    pub(super) end: Arc<EndNote>,
    host: Option<HostTopology>,
}

impl View {
    /// Of a machine that waits for the word to run; `config` is what it was made from.
    #[must_use]
    pub fn of(machine: &Assembled, config: &MachineConfig) -> Self {
        let vcpus: Vec<VcpuWatch> = machine.handles.iter().map(VcpuHandle::watch).collect();
        machine.pause.driver().recent().keep();
        Self {
            configuration: configuration(config),
            topology: machine.machine.topology.clone(),
            told: Mutex::new(vec![Growing::default(); vcpus.len()]),
            vcpus,
            driver: Arc::clone(machine.pause.driver()),
            pause: machine.pause.control(),
            set: Mutex::new(config.pause_set.iter().map(flagged).collect()),
            placement: OnceLock::new(),
            placed: Mutex::default(),
            remarks: machine.placement.remarks().to_vec(),
            stats: machine.vm.stats(),
            console: Arc::clone(&machine.parts.console),
            power: Arc::clone(&machine.parts.power),
            buses: Arc::clone(&machine.parts.buses),
            end: Arc::clone(&machine.parts.end),
            // Where the host cannot be read nodes are not told.
            host: sysfs::host().ok(),
        }
    }

    /// The host node of a CPU, where the host tells.
    pub(super) fn host_node(&self, cpu: HostCpu) -> Option<HostNode> {
        let host = self.host.as_ref()?;
        let found = host.cpus().iter().find(|one| one.id == cpu)?;
        host.nodes().get(found.node).map(|node| node.id)
    }

    /// Who set a parameter of the pause handling, if anybody did.
    pub(super) fn who_set(&self, name: &str) -> Option<&'static str> {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        set.iter().rev().find(|(one, _)| one == name).map(|(_, who)| *who)
    }
}

fn flagged(parameter: &PauseParameter) -> (String, &'static str) {
    (parameter.name().to_owned(), "flag")
}

/// As the API writes it: with the defaults put in, and without the API itself.
fn configuration(config: &MachineConfig) -> Configuration {
    match serde_json::to_value(config.without_api().effective()) {
        Ok(serde_json::Value::Object(keys)) => Configuration(keys),
        // A path that is not UTF-8; there is no other way to fail.
        Ok(_) | Err(_) => Configuration::default(),
    }
}

#[cfg(test)]
mod tests {
    use api::wire::Configuration as Wire;
    use utoipa::PartialSchema;

    use super::*;
    use crate::config::parse;

    #[test]
    fn a_configuration_that_is_told_can_be_sent_back() {
        let config =
            parse("cpus = 4\nmemory = \"1G\"\nnuma = 2\npause_set = [\"bail_after=5\"]\napi_sock = \"x\"\n").unwrap();
        let told = configuration(&config);
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(parse(&text).unwrap(), config.without_api().effective());
        assert!(!text.contains("api"), "{text}");
    }

    #[test]
    fn the_document_names_the_keys_that_there_are() {
        let schema = serde_json::to_value(Wire::schema()).unwrap();
        let documented: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let known = crate::config::known_keys();
        for key in known.iter().filter(|key| !key.starts_with("api_")) {
            assert!(documented.iter().any(|one| one == key), "{key} is not in api's Configuration");
        }
        for key in documented {
            assert!(known.contains(&key.as_str()), "api's Configuration has {key}, which is no key");
        }
    }
}
