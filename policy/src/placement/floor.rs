// SPDX-License-Identifier: Apache-2.0
//! Who is on which CPU while a start placement is being made.
//!
//! CPUs are dense indices into [`HostTopology::cpus`]. Invariant: a CPU that is not usable is never vacant.

use topology::host::HostTopology;

use super::{PlacementError, Rules, Wishes};

/// Occupancy of the host by this VM and by the claims of others.
pub(super) struct Floor<'h> {
    pub(super) host: &'h HostTopology,
    pub(super) rules: Rules,
    usable: Vec<bool>,
    own: Vec<u32>,
    claims: Vec<u32>,
}

impl<'h> Floor<'h> {
    /// The empty floor: usable CPUs less what others claimed exclusively.
    pub(super) fn new(host: &'h HostTopology, wishes: &Wishes) -> Result<Self, PlacementError> {
        let mut usable = vec![false; host.cpus().len()];
        for cpu in host.usable().iter().filter_map(|cpu| host.index_of(cpu)) {
            usable[cpu] = true;
        }
        let mut claims = vec![0; usable.len()];
        for claim in &wishes.claims {
            for cpu in claim.cpus.iter().filter_map(|cpu| host.index_of(cpu)) {
                usable[cpu] &= !claim.exclusive;
                claims[cpu] += u32::from(wishes.rules.claims);
            }
        }
        if !usable.contains(&true) {
            return Err(PlacementError::AllClaimed { usable: host.usable().to_string() });
        }
        let own = vec![0; usable.len()];
        Ok(Self { host, rules: wishes.rules, usable, own, claims })
    }

    pub(super) fn own(&self, cpu: usize) -> u32 {
        self.own[cpu]
    }

    pub(super) fn claims(&self, cpu: usize) -> u32 {
        self.claims[cpu]
    }

    pub(super) fn put(&mut self, cpu: usize) {
        self.own[cpu] += 1;
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.usable.len()).filter(|&cpu| self.usable[cpu])
    }

    /// Rank of a CPU, zero if ranks are switched off.
    pub(super) fn rank(&self, cpu: usize) -> u32 {
        if self.rules.asym { self.host.cpus()[cpu].rank } else { 0 }
    }

    /// The numbers of claims that occur on usable CPUs, ascending.
    pub(super) fn claim_levels(&self) -> Vec<u32> {
        let mut levels: Vec<u32> = self.usable().map(|cpu| self.claims[cpu]).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// CPUs of a node (or of all) with exactly `own` vCPUs of this VM and `claims` claims, ascending.
    pub(super) fn vacant(&self, node: Option<usize>, own: u32, claims: u32) -> Vec<usize> {
        let cpus = self.host.cpus();
        let here = |cpu: &usize| node.is_none_or(|node| cpus[*cpu].node == node);
        self.usable().filter(|&cpu| self.own[cpu] == own && self.claims[cpu] == claims).filter(here).collect()
    }

    /// For every CPU of an ascending list, how many threads of its core would be busy before it: those that are busy
    /// now and those of the list with a lower number. All zero if cores do not matter.
    pub(super) fn sharers(&self, list: &[usize]) -> Vec<u32> {
        if !self.rules.whole_core {
            return vec![0; list.len()];
        }
        let cpus = self.host.cpus();
        let mut busy = vec![0; self.host.cores().len()];
        let occupied = |cpu: &usize| self.own[*cpu] + self.claims[*cpu] > 0 && list.binary_search(cpu).is_err();
        for cpu in (0..cpus.len()).filter(occupied) {
            busy[cpus[cpu].core] += 1;
        }
        let sharers = |&cpu: &usize| {
            let threads: &mut u32 = &mut busy[cpus[cpu].core];
            *threads += 1;
            *threads - 1
        };
        list.iter().map(sharers).collect()
    }
}
