// SPDX-License-Identifier: Apache-2.0
//! Placement at start: reads the host, claims CPUs, decides, and applies the decision before guest code runs.
//!
//! The cheap ways come first: `none` reads nothing, and a process that may use one CPU, or was told which to use, does
//! not read the host's shape.

use std::io;
use std::sync::Arc;

use policy::placement::{Guest, Mode, Plan, Rules};
use topology::cpu_set::CpuSet;
use topology::guest::GuestTopology;
use topology::id::HostCpu;
use topology::memory_map::MemoryMap;

use super::account::Account;
use super::confine;
use super::control::{HandleError, PlacementHandle};
use super::crew::Crew;
use super::decide::Deciding;
use super::error::StartError;
use super::live::{Left, Live};
use super::memory::{self, NodeMemory};
use super::mover::Asked;
use super::pairs::{Pairs, PauseHandling};
use super::site::Site;
use crate::config::{HugePages, Machine, PlacementConfig};
use crate::host::core_scheduling::{self, CoreSchedulingError};
use crate::host::registry::{OwnClaim, Record};
use crate::host::{affinity, facts, sysfs};
use crate::memory::GuestRam;
use crate::pause::effective::Grant;
use crate::vcpu::thread::{ANSWER_LIMIT, VcpuHandle, ids_within};

/// What was decided for one machine, and what came of it.
pub struct Placement {
    config: PlacementConfig,
    rules: Rules,
    huge_pages: Option<HugePages>,
    /// What there was to decide on; `None` where nothing was decided.
    pub(super) site: Option<Site>,
    /// Guest nodes' memory.
    memory: Vec<NodeMemory>,
    /// What should be known: degradations, double booking.
    remarks: Vec<String>,
    core_scheduling: Option<Grant>,
    pauses: Option<Arc<dyn PauseHandling>>,
    live: Option<Live>,
    account: Option<Account>,
}

impl Placement {
    /// Decides where a machine goes, and claims the CPUs.
    ///
    /// # Errors
    /// [`StartError`]. `auto` makes no decision where the host cannot be understood, and says so.
    pub fn decide(machine: &Machine) -> Result<Self, StartError> {
        let config = machine.placement.clone();
        let mut placement = Self {
            config,
            rules: machine.rules,
            huge_pages: machine.huge_pages,
            site: None,
            memory: Vec::new(),
            remarks: Vec::new(),
            core_scheduling: None,
            pauses: None,
            live: None,
            account: None,
        };
        let wished = machine.node_wishes.iter().any(|wish| !wish.host_nodes.is_empty() || wish.policy.is_some());
        if placement.config.mode == Mode::None && !wished {
            return Ok(placement);
        }
        let shaped = placement.needs_the_shape(wished);
        let host = match if shaped { sysfs::host() } else { sysfs::limits() } {
            Ok(host) => host,
            Err(source) if placement.config == PlacementConfig::default() && !wished => {
                placement.remarks.push(format!("nothing is placed, the host's topology cannot be used: {source}"));
                return Ok(placement);
            }
            Err(source) => return Err(StartError::Host { placement: placement.config.to_string(), source }),
        };
        if shaped {
            let unknown: Vec<String> = host.degradations().iter().map(ToString::to_string).collect();
            let said = format!("the host's shape is known in part: {}", unknown.join("; "));
            placement.remarks.extend((!unknown.is_empty()).then_some(said));
        }
        let mut guest = Guest::new(&machine.topology);
        memory::wish(&mut guest, &machine.node_wishes, machine.huge_pages);
        let mut deciding =
            Deciding { config: &placement.config, rules: placement.rules, remarks: &mut placement.remarks };
        let process = affinity::of_this_thread().unwrap_or_default();
        let site = deciding.site((host, guest), process, &mut None)?;
        placement.memory = memory::decide(machine, &site.host, &site.plan)?;
        placement.site = Some(site);
        Ok(placement)
    }

    /// Whether the decision needs more of the host than which CPUs there are.
    fn needs_the_shape(&self, wished: bool) -> bool {
        let one = affinity::of_this_thread().is_ok_and(|cpus| cpus.len() == 1);
        wished || !(one || matches!(self.config.mode, Mode::Pin(_)))
    }

    /// Ties the guest's RAM to the host's nodes; nothing of it may have been touched.
    ///
    /// # Errors
    /// [`StartError::Memory`].
    pub fn bind(&mut self, map: &MemoryMap, ram: &GuestRam) -> Result<(), StartError> {
        memory::bind(&mut self.memory, map, ram, &mut self.remarks)?;
        Ok(memory::populate(&self.memory, self.huge_pages)?)
    }

    /// Puts the vCPU threads where they go.
    ///
    /// # Errors
    /// [`StartError::Thread`]; where nothing was asked for, what fails is said and left.
    pub fn confine(&mut self, threads: &[VcpuHandle]) -> Result<(), StartError> {
        let Some(site) = &self.site else { return Ok(()) };
        for (thread, cpus) in threads.iter().zip(&site.cpus) {
            let Err(source) = thread.confine(cpus) else { continue };
            let (placement, vcpu, cpus) = (self.config.to_string(), thread.index(), cpus.to_string());
            let failed = StartError::Thread { placement, vcpu, cpus, source };
            if self.config != PlacementConfig::default() {
                return Err(failed);
            }
            self.remarks.push(failed.to_string());
        }
        Ok(())
    }

    /// Lets the vCPU threads share cores with each other only; what came of it is in [`Placement::core_scheduling`].
    pub fn share_cores(&mut self, threads: &[VcpuHandle]) {
        let name = "core-scheduling";
        let crew = Crew::of(threads);
        let late = || CoreSchedulingError::Refused(io::ErrorKind::TimedOut.into());
        let shared = ids_within(crew.ids(), ANSWER_LIMIT).ok_or_else(late).and_then(|ids| core_scheduling::share(&ids));
        let grant = match shared {
            Ok(cookie) => Grant::yes(name, format!("all vCPU threads have cookie {cookie:#x}, nobody else has")),
            Err(error) => Grant::no(name, error.to_string(), error.remedy()),
        };
        if !grant.granted {
            let remedy = grant.remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
            self.remarks.push(format!("--core-scheduling is not granted: {}{remedy}", grant.why));
        }
        self.core_scheduling = Some(grant);
    }

    /// What came of core scheduling; `None` if it was not asked for.
    #[must_use]
    pub fn core_scheduling(&self) -> Option<&Grant> {
        self.core_scheduling.as_ref()
    }

    /// Puts all threads that are no vCPUs, and those they start later, where they disturb no vCPU. Once the guest runs: the
    /// kernel moves a thread that is on a wrong CPU at once, and on a busy host that can take as long as a turn on the
    /// other CPU.
    pub fn keep_off(&mut self, threads: &[VcpuHandle]) {
        let Some(site) = &mut self.site else { return };
        let places: Vec<HostCpu> = confine::union(site.cpus.iter()).iter().collect();
        site.others = (!places.is_empty()).then(|| confine::others(&site.host, &places, &site.claims)).flatten();
        if let Some(cpus) = &site.others {
            Crew::of(threads).keep_others_on(cpus, &site.cpus);
        }
    }

    /// Takes note of who counts to whom vCPUs yield and is told what CPUs they have, for what is decided while the guest runs.
    pub fn heed(&mut self, pauses: Arc<dyn PauseHandling>) {
        self.pauses = Some(pauses);
    }

    /// Goes on deciding while the guest runs, if that is what `auto` can do here: with one CPU there is no choice.
    pub fn go_on(&mut self, threads: &[VcpuHandle]) {
        if self.config.mode == Mode::Auto && self.site.as_ref().is_some_and(|site| site.host.usable().len() > 1) {
            self.attend(threads);
        }
    }

    /// A way to ask about placement and to change it while the guest runs, whatever the mode.
    ///
    /// # Errors
    /// No thread can be started that would answer, or the host cannot be understood.
    pub fn handle(&mut self, topology: &GuestTopology, threads: &[VcpuHandle]) -> Result<PlacementHandle, HandleError> {
        if self.live.is_none() && self.site.is_none() {
            self.site = Some(Site::undecided(sysfs::host()?, Guest::new(topology)));
        }
        self.attend(threads);
        self.live.as_ref().map(Live::handle).ok_or(HandleError::NoThread)
    }

    fn attend(&mut self, threads: &[VcpuHandle]) {
        let Some(site) = self.site.take() else { return };
        let asked = Asked { config: self.config.clone(), rules: self.rules };
        let pairs = Pairs::of(self.pauses.clone());
        match Live::start(asked, site, &self.memory, Crew::of(threads), pairs) {
            Ok(live) => self.live = Some(live),
            Err(error) => self.remarks.push(format!("vCPUs stay where they are, no thread can be started: {error}")),
        }
    }

    /// Stops deciding.
    pub fn rest(&mut self) {
        if let Some(Left { site, account, memory }) = self.live.take().and_then(Live::finish) {
            self.remarks.extend(account.remarks.iter().cloned());
            (self.site, self.account, self.memory) = (Some(site), Some(account), memory);
        }
    }

    /// What was done while the guest ran, once that is over; `None` where nothing was decided then.
    #[must_use]
    pub fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }

    /// What was asked for.
    #[must_use]
    pub fn config(&self) -> &PlacementConfig {
        &self.config
    }

    /// What should be known of it.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The plan, if anything was decided.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.site.as_ref().map(|site| &site.plan)
    }

    /// CPUs of each vCPU thread by index, as applied; empty where the kernel decides.
    #[must_use]
    pub fn cpus(&self) -> &[CpuSet<HostCpu>] {
        self.site.as_ref().map_or(&[], |site| &site.cpus)
    }

    /// CPUs of all other threads; `None` where they may go anywhere.
    #[must_use]
    pub fn other_cpus(&self) -> Option<&CpuSet<HostCpu>> {
        self.site.as_ref().and_then(|site| site.others.as_ref())
    }

    /// What is claimed; `None` without a registry.
    #[must_use]
    pub fn claim(&self) -> Option<&Record> {
        self.site.as_ref().and_then(|site| site.own.as_ref()).map(OwnClaim::record)
    }

    /// The memory of each guest node; empty where the kernel decides.
    #[must_use]
    pub fn memory(&self) -> &[NodeMemory] {
        &self.memory
    }

    /// How many CPUs the vCPUs may use together.
    #[must_use]
    pub fn usable_cpus(&self) -> u32 {
        let cpus = confine::union(self.cpus().iter()).len();
        if cpus == 0 { facts::cpus_online() } else { u32::try_from(cpus).unwrap_or(u32::MAX) }
    }
}
