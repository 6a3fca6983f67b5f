// SPDX-License-Identifier: Apache-2.0
//! From what was asked for to a driver that runs: probes the host, decides what is used, and says so.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kvm_ioctls::Cap;
use policy::pause::PauseConfig;
use topology::cpuid::CpuidEntry;
use topology::id::VcpuIndex;

use super::driver::{Driver, DriverParts};
use super::effective::{Effective, Grant};
use super::exact_view::BestView;
use super::helper::Helper;
use super::inject::Schedule;
use super::port;
use super::runqueue::RunqueueView;
use super::thread::{Kit, VcpuPause};
use super::tracepoint::Tracepoint;
use super::trial::{YIELD, YieldTrial};
use crate::config::{InjectionConfig, Machine, MechanismChoice, PauseMode, PausePlan, SourceChoice};
use crate::host::facts;
use crate::host::runqueue::OwnThreads;
use crate::kvm::system::System;
use crate::kvm::vm::Vm;
use crate::memory::GuestRam;
use crate::report::KvmKind;

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
    /// A source that was asked for by name and is not there.
    #[error("--pause-source {name}: {why}")]
    Source {
        /// The source.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A mechanism that was asked for by name and is not there.
    #[error("--pause-mechanism {name}: {why}")]
    Mechanism {
        /// The mechanism.
        name: String,
        /// Why not, and what to do.
        why: String,
    },
}

/// The pause handling of one machine, before its vCPUs exist.
pub struct PauseSetup {
    driver: Arc<Driver>,
    kit: Kit,
    spins: u32,
    effective: Effective,
    injection: Option<InjectionConfig>,
    sampler_window_ns: Option<u64>,
    helpers: Vec<Helper>,
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
        let trial = yield_trial(plan, machine.topology.vcpu_count());
        let mut config = plan.policy;
        let mechanisms = grant_mechanisms(plan, &trial, &mut config);
        if let Some(refused) = mechanisms.iter().find(|one| one.name == plan.mechanism.to_string() && !one.granted) {
            return Err(PauseError::Mechanism { name: refused.name.clone(), why: refused.why.clone() });
        }
        let served = port_served(plan);
        let (tracepoint, sources) = grant_sources(plan, vm);
        if let Some(refused) =
            sources.iter().find(|one| one.name == plan.source.to_string() && one.asked && !one.granted)
        {
            return Err(PauseError::Source { name: refused.name.clone(), why: refused.why.clone() });
        }
        let counted = served && system.capability(Cap::SyncRegs) & kvm_bindings::KVM_SYNC_X86_REGS != 0;
        let threads = Arc::new(OwnThreads::new(machine.topology.vcpu_count() as usize));
        let runqueues: Arc<dyn RunqueueView> = if views_count(plan, machine.topology.vcpu_count()) {
            Arc::new(BestView::new(Arc::clone(&threads)))
        } else {
            Arc::clone(&threads) as _
        };
        let samples = plan.source == SourceChoice::Sampler && decides(plan.mode);
        let effective = Effective {
            mode: plan.mode.to_string(),
            sources,
            unseen: None,
            mechanisms,
            views: Vec::new(),
            parameters: parameters(plan),
        };
        let parts = DriverParts {
            mode: plan.mode,
            mechanism: plan.mechanism,
            config,
            apic_ids: machine.topology.vcpus().map(|vcpu| machine.topology.apic_id(vcpu)).collect(),
            usable_cpus,
            runqueues,
            trial,
            decision_log: plan.decision_log.clone(),
        };
        let driver = Driver::new(parts).map_err(|source| PauseError::DecisionLog {
            path: plan.decision_log.clone().unwrap_or_default(),
            source,
        })?;
        // In range: checked with the parameters.
        let spins = u32::try_from(plan.sources.port_spins).unwrap_or(u32::MAX);
        let ram = samples.then(|| ram.clone());
        Ok(Self {
            driver: Arc::new(driver),
            kit: Kit { port: served, counted, tracepoint, ram, threads },
            spins,
            effective,
            injection: plan.injection.clone(),
            sampler_window_ns: samples.then_some(plan.sources.sampler_window_ns),
            helpers: Vec::new(),
        })
    }

    /// Starts what runs beside the vCPUs: the injector, the sampler. Once, when the vCPU threads are there.
    ///
    /// # Errors
    /// [`PauseError::Helper`].
    pub fn start(&mut self) -> Result<(), PauseError> {
        let vcpus = u32::try_from(self.driver.seats().len()).unwrap_or(u32::MAX);
        let driver = || Arc::clone(&self.driver);
        let injector = self
            .injection
            .as_ref()
            .map(|injection| Helper::injector(driver(), Schedule::new(injection, vcpus), injection.hold_ns));
        let sampler = self.sampler_window_ns.map(|window_ns| Helper::sampler(driver(), window_ns));
        let started = injector.into_iter().chain(sampler).collect::<io::Result<Vec<_>>>();
        self.helpers = started.map_err(PauseError::Helper)?;
        Ok(())
    }

    /// Ends what [`PauseSetup::start`] started.
    pub fn stop(&mut self) {
        self.helpers.clear();
    }

    /// Adds to a vCPU's CPUID what its guest is to find.
    pub fn announce(&self, entries: &mut Vec<CpuidEntry>) {
        if self.kit.port {
            let announcement = port::announcement(entries, self.spins, self.kit.counted);
            entries.extend(announcement);
        }
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

    /// What is really used, as far as that is known by now.
    #[must_use]
    pub fn effective(&self) -> Effective {
        let (views, unseen) = (self.driver.views(), self.driver.unseen());
        let mut effective = Effective { views, unseen, ..self.effective.clone() };
        for mechanism in effective.mechanisms.iter_mut().filter(|one| one.name == YIELD && one.asked) {
            *mechanism = self.driver.trial().grant();
        }
        effective
    }
}

/// Whether the pause port is announced and served.
fn port_served(plan: &PausePlan) -> bool {
    matches!(plan.mode, PauseMode::Observe | PauseMode::Act)
        && matches!(plan.source, SourceChoice::Auto | SourceChoice::Port)
}

/// Whether the mode looks at events at all.
fn decides(mode: PauseMode) -> bool {
    matches!(mode, PauseMode::Observe | PauseMode::Act)
}

/// Whether decisions depend on what is seen of the runqueues.
fn views_count(plan: &PausePlan, vcpus: u32) -> bool {
    decides(plan.mode) && plan.mechanism == MechanismChoice::Auto && vcpus > 1
}

/// The sources that are used, and the tracepoint if it is one of them.
fn grant_sources(plan: &PausePlan, vm: &Vm) -> (Option<Tracepoint>, Vec<Grant>) {
    let unasked = |name: &str| Grant::unasked(name, format!("--pause {} --pause-source {}", plan.mode, plan.source));
    let mut sources =
        vec![if port_served(plan) { Grant::yes("port", "announced to the guest by CPUID") } else { unasked("port") }];
    let traced = plan.mode == PauseMode::Kernel
        || decides(plan.mode) && matches!(plan.source, SourceChoice::Auto | SourceChoice::Tracepoint);
    // KVM alone is only counted, without a single forced exit.
    let period = if decides(plan.mode) { plan.sources.tracepoint_period } else { 0 };
    let tracepoint = match traced.then(|| Tracepoint::find(facts::kvm_kind(), period)) {
        None => {
            sources.push(unasked("tracepoint"));
            None
        }
        Some(Err(refused)) => {
            sources.push(*refused);
            None
        }
        Some(Ok(found)) => {
            let forced =
                if period > 0 { format!("every {period}th PAUSE exit forces one") } else { "counted".to_owned() };
            sources.push(Grant::yes("tracepoint", format!("kvm:kvm_exit, {forced}")));
            Some(found)
        }
    };
    sources.push(if decides(plan.mode) && plan.source == SourceChoice::Sampler {
        Grant::yes("sampler", format!("looks after {} ns without an exit", plan.sources.sampler_window_ns))
    } else {
        unasked("sampler")
    });
    if plan.mode == PauseMode::Off {
        sources.push(no_pause_exits(vm));
    }
    (tracepoint, sources)
}

fn no_pause_exits(vm: &Vm) -> Grant {
    const NAME: &str = "no-pause-exits";
    match (facts::kvm_kind(), vm.disable_pause_exits()) {
        (_, Ok(())) => Grant::yes(NAME, "KVM_CAP_X86_DISABLE_EXITS"),
        (KvmKind::Software, Err(_)) => Grant::yes(NAME, "software-virtualised KVM makes none"),
        (_, Err(error)) => Grant::no(
            NAME,
            format!("KVM_CAP_X86_DISABLE_EXITS: {error}"),
            Some("load kvm_intel with ple_gap=0, or kvm_amd with pause_filter_count=0"),
        ),
    }
}

/// The probe of `sched_yield`, made at once if a decision log is to say what came of it.
fn yield_trial(plan: &PausePlan, vcpus: u32) -> YieldTrial {
    let asked = matches!(plan.mechanism, MechanismChoice::Auto | MechanismChoice::Yield);
    if plan.mode != PauseMode::Act || !asked {
        return YieldTrial::skipped(format!("with --pause {} --pause-mechanism {}", plan.mode, plan.mechanism));
    }
    if vcpus == 1 {
        return YieldTrial::skipped("with one vCPU".to_owned());
    }
    let trial = YieldTrial::due(plan.mechanism == MechanismChoice::Auto);
    if plan.decision_log.is_some() && trial.is_due() {
        trial.make();
    }
    trial
}

/// Decides which mechanisms are used and writes that into the policy's parameters.
fn grant_mechanisms(plan: &PausePlan, trial: &YieldTrial, config: &mut PauseConfig) -> Vec<Grant> {
    if plan.mode != PauseMode::Act {
        return vec![Grant::unasked("none", format!("--pause {} does nothing", plan.mode))];
    }
    let asked = |which| plan.mechanism == MechanismChoice::Auto || plan.mechanism == which;
    let sched_yield =
        if asked(MechanismChoice::Yield) { trial.grant() } else { Grant::unasked(YIELD, trial.grant().why) };
    let park = if asked(MechanismChoice::Park) {
        Grant::yes("park", "futex")
    } else {
        Grant::unasked("park", format!("--pause-mechanism {}", plan.mechanism))
    };
    let hypercall = if asked(MechanismChoice::Hypercall) {
        Grant::no("hypercall", "this version has no helper vCPUs for it", Some("leave the choice to auto"))
    } else {
        Grant::unasked("hypercall", format!("--pause-mechanism {}", plan.mechanism))
    };
    config.mechanisms.sched_yield = sched_yield.granted;
    config.mechanisms.park = park.granted;
    config.mechanisms.hypercall = hypercall.granted;
    vec![sched_yield, park, hypercall]
}

fn parameters(plan: &PausePlan) -> std::collections::BTreeMap<String, u64> {
    let policy = plan.policy.parameters();
    let sources = plan.sources.parameters();
    policy.iter().chain(&sources).map(|(name, value, ..)| ((*name).to_owned(), *value)).collect()
}
