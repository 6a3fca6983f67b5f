// SPDX-License-Identifier: Apache-2.0
//! A machine that is only memory: what clients and this room's own server are tested against, without KVM.
//!
//! It keeps every rule of [`Monitor`] that a client can see: states, generations, refusals. Its counters grow with the time
//! that [`FakeMonitor::advance`] says has passed, and with nothing else.

mod change;
mod numbers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use topology::guest::{GuestTopology, TopologyRequest};
use topology::host::{HostShape, HostTopology};

use topology::id::VcpuIndex;

use crate::events::EventLog;
use crate::monitor::{Change, Monitor, Promise, Ticket};
use crate::serial::SerialLog;
use crate::wire::{
    Configuration, Decisions, Exit, Generation, Host, Pause, Placement, Stats, Thresholds, ThresholdsChange, Topology,
    Vcpu, Vcpus, Vm, VmState,
};

/// A machine that runs nothing.
#[derive(Debug)]
pub struct FakeMonitor {
    host: HostTopology,
    machine: Mutex<Option<Machine>>,
    events: Arc<EventLog>,
    serial: Arc<SerialLog>,
    /// Changes that are never carried out, while `stuck`.
    unredeemed: Mutex<Vec<Promise>>,
    stuck: AtomicBool,
    ending: AtomicBool,
}

/// The machine itself.
#[derive(Debug)]
struct Machine {
    configuration: Configuration,
    shape: GuestTopology,
    state: VmState,
    generation: Generation,
    /// Time that its vCPUs have run.
    ran_ns: u64,
    exit: Option<Exit>,
    settings: change::Settings,
}

impl FakeMonitor {
    /// A running machine of `cpus` vCPUs (1 to 255) on a host of two nodes with four cores of two threads each.
    #[must_use]
    pub fn running(cpus: u32) -> Self {
        let monitor = Self::empty();
        let mut configuration = Configuration::default();
        configuration.0.insert("cpus".to_owned(), cpus.clamp(1, 255).into());
        if let Ok(mut machine) = Machine::create(configuration) {
            machine.state = VmState::Running;
            *monitor.lock() = Some(machine);
        }
        monitor
    }

    /// No machine yet, as under `vmm --api-only`.
    #[must_use]
    pub fn empty() -> Self {
        let shape = HostShape { nodes: 2, llcs: 1, clusters: 2, cores: 2, threads: 2, node_memory_bytes: 4 << 30 };
        Self {
            host: shape.build().expect("invariant: a small host can be built"),
            machine: Mutex::default(),
            events: Arc::default(),
            serial: Arc::default(),
            unredeemed: Mutex::default(),
            stuck: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Machine>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its events.
    #[must_use]
    pub fn events(&self) -> Arc<EventLog> {
        Arc::clone(&self.events)
    }

    /// Its serial output.
    #[must_use]
    pub fn serial(&self) -> Arc<SerialLog> {
        Arc::clone(&self.serial)
    }

    /// Lets time pass for its vCPUs, if they run.
    pub fn advance(&self, ns: u64) {
        if let Some(machine) = self.lock().as_mut().filter(|machine| machine.state == VmState::Running) {
            machine.ran_ns += ns;
        }
    }

    /// From now on, or no longer: changes are accepted and never carried out.
    pub fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::SeqCst);
        if !stuck {
            self.unredeemed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// From now on, or no longer: changes are refused because the process is about to end.
    pub fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::SeqCst);
    }

    /// Takes the machine away, as if it had never been created.
    pub fn forget(&self) {
        *self.lock() = None;
    }
}

impl Monitor for FakeMonitor {
    fn vm(&self) -> Option<Vm> {
        self.lock().as_ref().map(Machine::vm)
    }

    fn vcpus(&self) -> Option<Vcpus> {
        self.lock().as_ref().map(|machine| machine.vcpus(&self.host))
    }

    fn vcpu(&self, index: VcpuIndex) -> Option<Vcpu> {
        self.lock().as_ref().and_then(|machine| machine.vcpu(index, &self.host))
    }

    fn topology(&self) -> Option<Topology> {
        self.lock().as_ref().map(|machine| Topology::of(&machine.shape))
    }

    fn host(&self) -> Host {
        Host::of(&self.host, Some("software".to_owned()), "6.12.0-fake".to_owned())
    }

    fn placement(&self) -> Option<Placement> {
        self.lock().as_ref().map(|machine| machine.placement(&self.host))
    }

    fn pause(&self) -> Option<Pause> {
        self.lock().as_ref().map(Machine::pause)
    }

    fn thresholds(&self) -> Option<Thresholds> {
        let told = |machine: &Machine| {
            Thresholds::of(&ThresholdsChange::default(), &machine.settings.thresholds, machine.generation)
        };
        self.lock().as_ref().map(told)
    }

    fn stats_of(&self, _vcpus: &[Vcpu]) -> Option<Stats> {
        self.lock().as_ref().map(Machine::stats)
    }

    fn decisions(&self, limit: usize) -> Option<Decisions> {
        self.lock().as_ref().map(|machine| machine.decisions(limit))
    }

    fn ask(&self, change: Change, expected: Option<Generation>) -> Ticket {
        if self.stuck.load(Ordering::SeqCst) {
            let (ticket, promise) = Ticket::with_promise();
            self.unredeemed.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
            return ticket;
        }
        Ticket::ready(self.carry_out(change, expected))
    }
}

impl Machine {
    fn vm(&self) -> Vm {
        let nodes = u32::try_from(self.shape.nodes().len()).unwrap_or(u32::MAX);
        Vm {
            state: self.state,
            generation: self.generation,
            configuration: self.configuration.clone(),
            cpus: self.shape.vcpu_count(),
            nodes,
            memory_bytes: self.shape.memory_bytes(),
            uptime_ns: (self.state != VmState::Created).then_some(self.ran_ns),
            exit: self.exit.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn shape_of(cpus: u32, nodes: u32) -> Result<GuestTopology, String> {
        let request = TopologyRequest::even(cpus, nodes, 512 << 20).map_err(|error| error.to_string())?;
        GuestTopology::new(&request).map_err(|error| error.to_string())
    }
}
