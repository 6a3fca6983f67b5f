// SPDX-License-Identifier: Apache-2.0
//! From what was asked for to a driver that runs: probes the host, decides what is used, and says so.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kvm_ioctls::Cap;
use topology::cpuid::CpuidEntry;
use topology::id::{ApicId, VcpuIndex};

use super::control::{ChangeError, Control, NO_PAUSE_EXITS};
use super::driver::Driver;
use super::effective::{Effective, Grant};
use super::exact_view::BestView;
use super::helper::Helper;
use super::hypercall::Hypercalls;
use super::inject::Schedule;
use super::runqueue::RunqueueView;
use super::source::{self, Circumstances, PauseSource};
use super::thread::{Kit, VcpuPause};
use crate::config::{InjectionConfig, Machine, PauseMode, PausePlan};
use crate::host::facts;
use crate::host::runqueue::OwnThreads;
use crate::kvm::system::System;
use crate::kvm::vm::Vm;
use crate::memory::GuestRam;
use crate::report::KvmKind;

/// What a driver is made from.
pub struct DriverParts {
    /// What was asked for; the driver holds to it once it has [adopted](Driver::adopt) it.
    pub plan: PausePlan,
    /// APIC ids by vCPU index.
    pub apic_ids: Vec<ApicId>,
    /// Host CPUs that the vCPU threads may use.
    pub usable_cpus: u32,
    /// How runqueues are looked at.
    pub runqueues: Arc<dyn RunqueueView>,
    /// The helper vCPUs.
    pub hypercalls: Hypercalls,
}

/// The pause handling of a machine cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// The decision log.
    #[error("--decision-log {}: cannot be created: {source}; name a file in a directory that can be written", .path.display())]
    DecisionLog {
        /// The path as given.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// A helper thread.
    #[error("a thread beside the vCPUs cannot be started: {0}; raise the limit on processes (ulimit -u, pids cgroup)")]
    Helper(#[source] io::Error),
    /// What was asked for by name and is not there.
    #[error(transparent)]
    Refused(#[from] ChangeError),
}

/// The pause handling of one machine.
pub struct PauseSetup {
    driver: Arc<Driver>,
    control: Control,
    kit: Kit,
    injection: Option<InjectionConfig>,
    injector: Option<Helper>,
}

impl PauseSetup {
    /// Finds out what the host grants of what the machine asks for. PAUSE exits are switched off here, for that must
    /// happen before the first vCPU is made. `usable_cpus` is how many host CPUs the vCPUs have together.
    ///
    /// # Errors
    /// [`PauseError`].
    pub fn prepare(
        machine: &Machine,
        system: &System,
        vm: &Vm,
        ram: &GuestRam,
        usable_cpus: u32,
    ) -> Result<Self, PauseError> {
        let plan = &machine.pause;
        let exits_off = (plan.mode == PauseMode::Off).then(|| no_pause_exits(vm));
        let counted = system.capability(Cap::SyncRegs) & kvm_bindings::KVM_SYNC_X86_REGS != 0;
        let no_exits = exits_off.as_ref().is_some_and(|exits| exits.granted);
        let vcpus = machine.topology.vcpu_count() as usize;
        let made = Circumstances { counted, no_exits, cpu_for_each: vcpus <= usable_cpus as usize };
        let registry: Arc<[Arc<dyn PauseSource>]> = source::registry(plan, ram, made).into();
        let threads = Arc::new(OwnThreads::new(vcpus));
        let parts = DriverParts {
            plan: plan.clone(),
            apic_ids: machine.topology.vcpus().map(|vcpu| machine.topology.apic_id(vcpu)).collect(),
            usable_cpus,
            runqueues: Arc::new(BestView::new(Arc::clone(&threads))),
            hypercalls: Hypercalls::of(machine, system, vm),
        };
        let driver = Driver::new(parts).map_err(|source| PauseError::DecisionLog {
            path: plan.decision_log.clone().unwrap_or_default(),
            source,
        })?;
        let driver = Arc::new(driver);
        let control = Control::new(Arc::clone(&driver), Arc::clone(&registry), plan, exits_off)?;
        let kit = Kit { registry, threads };
        Ok(Self { driver, control, kit, injection: plan.injection.clone(), injector: None })
    }

    /// Starts what runs beside the vCPUs: the injector, and what the sources need. Once, when the vCPU threads are there.
    ///
    /// # Errors
    /// [`PauseError`].
    pub fn start(&mut self) -> Result<(), PauseError> {
        let vcpus = u32::try_from(self.driver.seats().len()).unwrap_or(u32::MAX);
        let injector = self.injection.as_ref().map(|injection| {
            Helper::injector(Arc::clone(&self.driver), Schedule::new(injection, vcpus), injection.hold_ns)
        });
        self.injector = injector.transpose().map_err(PauseError::Helper)?;
        self.control.start()?;
        Ok(())
    }

    /// Ends what [`PauseSetup::start`] started.
    pub fn stop(&mut self) {
        self.injector = None;
        self.control.stop();
    }

    /// Adds to a vCPU's CPUID what its guest is to find.
    pub fn announce(&self, entries: &mut Vec<CpuidEntry>) {
        self.kit.registry.iter().for_each(|source| source.announce(entries));
    }

    /// The hook of a vCPU's thread.
    #[must_use]
    pub fn hook(&self, vcpu: VcpuIndex) -> VcpuPause {
        VcpuPause::new(Arc::clone(&self.driver), vcpu, self.kit.clone())
    }

    /// The driver, for counters.
    #[must_use]
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The handle by which the pause handling is looked at and changed, also while the guest runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What is really used, as far as that is known by now.
    #[must_use]
    pub fn effective(&self) -> Effective {
        self.control.effective()
    }
}

fn no_pause_exits(vm: &Vm) -> Grant {
    match (facts::kvm_kind(), vm.disable_pause_exits()) {
        (_, Ok(())) => Grant::yes(NO_PAUSE_EXITS, "KVM_CAP_X86_DISABLE_EXITS"),
        (KvmKind::Software, Err(_)) => Grant::yes(NO_PAUSE_EXITS, "software-virtualised KVM makes none"),
        (_, Err(error)) => Grant::no(
            NO_PAUSE_EXITS,
            format!("KVM_CAP_X86_DISABLE_EXITS: {error}"),
            Some("load kvm_intel with ple_gap=0, or kvm_amd with pause_filter_count=0"),
        ),
    }
}
