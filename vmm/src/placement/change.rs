// SPDX-License-Identifier: Apache-2.0
//! What a request makes of a running machine's placement.
//!
//! Invariant: a request that is refused leaves threads, claim and state as they were.

use policy::placement::Config;
use topology::cpu_set::CpuSet;
use topology::id::{HostCpu, VcpuIndex};

use super::control::{ControlError, PlacementChange, PlacementState, VcpuPlace};
use super::decide::Deciding;
use super::mover::{Asked, Mover};
use crate::host::registry::Registry;
use crate::host::sysfs;

impl Mover {
    /// How things are.
    pub(super) fn state(&self) -> PlacementState {
        let vcpu = |index: usize| VcpuPlace {
            vcpu: VcpuIndex(u32::try_from(index).unwrap_or(u32::MAX)),
            cpus: self.site.cpus.get(index).unwrap_or(self.site.host.usable()).clone(),
            decision: self.decisions.get(index).copied().flatten(),
            held: self.held[index].is_some(),
        };
        PlacementState {
            config: self.asked.config.clone(),
            rules: self.asked.rules,
            plan: self.site.plan.clone(),
            vcpus: (0..self.crew.len()).map(vcpu).collect(),
            others: self.site.others.clone(),
            claimed: self.site.own.as_ref().map(|own| own.record().cpus.clone()),
            memory: self.memory.clone(),
            account: self.account.clone(),
        }
    }

    /// Decides anew if the mode changes; new rules hold from the next look on.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(super) fn change(&mut self, change: PlacementChange) -> Result<(), ControlError> {
        let asked = Asked {
            config: change.placement.unwrap_or_else(|| self.asked.config.clone()),
            rules: change.rules.unwrap_or(self.asked.rules),
        };
        if asked.config == self.asked.config {
            self.balancer.configure(Config { rules: asked.rules, ..Config::default() });
            self.asked = asked;
            return Ok(());
        }
        let (host, guest) = (sysfs::host()?, self.site.guest.clone());
        let mut remarks = Vec::new();
        let mut deciding = Deciding { config: &asked.config, rules: asked.rules, remarks: &mut remarks };
        let process = self.site.process.clone();
        let site = deciding.site((host, guest), process, &mut self.site.own)?;
        self.site = site;
        self.account.remarks.extend(remarks);
        self.balancer.configure(Config { rules: asked.rules, ..Config::default() });
        self.balancer.host_changed(self.site.host.clone(), self.now());
        self.registry = self.site.own.is_some().then(Registry::of_this_user).and_then(Result::ok);
        self.asked = asked;
        self.held.fill(None);
        self.take_plan();
        self.carry_out(&[], true);
        Ok(())
    }

    /// Holds a vCPU on these CPUs, or lets it go.
    ///
    /// # Errors
    /// [`ControlError`].
    pub(super) fn hold(&mut self, vcpu: VcpuIndex, cpus: Option<CpuSet<HostCpu>>) -> Result<(), ControlError> {
        let index = vcpu.index();
        let vcpus = self.crew.len();
        if index >= vcpus {
            return Err(ControlError::NoSuchVcpu { vcpu, vcpus });
        }
        if let Some(named) = &cpus {
            // The host may have changed since the last look, or never have been read as a whole.
            let usable = sysfs::limits()?.usable().clone();
            if named.is_empty() || !named.difference(&usable).is_empty() {
                return Err(ControlError::NotUsable { vcpu, cpus: named.difference(&usable), usable });
            }
            let refused = |source| ControlError::Refused { vcpu, cpus: named.clone(), source };
            self.crew.put(index, named).map_err(refused)?;
            if let Some((place, lowest)) = self.places.get_mut(index).zip(named.lowest()) {
                *place = lowest;
            }
        }
        self.held[index] = cpus;
        self.carry_out(&[], true);
        Ok(())
    }
}
