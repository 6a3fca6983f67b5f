// SPDX-License-Identifier: Apache-2.0
//! Which host node each guest node calls home at start: where its memory goes and its vCPUs go first.
//!
//! Invariant: a wish is obeyed or refused, never bent; without a wish every guest node gets the host node that comes
//! first by: memory fits, vCPUs fit, they fit on whole cores, fewest other guest nodes, near those that are placed
//! already, most room, lowest number.

use std::cmp::Reverse;

use topology::host::HostTopology;
use topology::id::HostNode;

use super::floor::Floor;
use super::{Guest, Mode, PlacementError};

/// Index of the home of every guest node in [`HostTopology::nodes`].
pub(super) fn homes(floor: &Floor<'_>, guest: &Guest, mode: &Mode) -> Result<Vec<usize>, PlacementError> {
    let mut town = Town::new(floor, guest);
    let mut homes: Vec<Option<usize>> = vec![None; guest.nodes.len()];
    for (index, node) in guest.nodes.iter().enumerate() {
        if let Some(wish) = node.host_node {
            let home = floor.host.node_index(wish).ok_or_else(|| no_such_node(floor.host, guest, index, wish))?;
            town.settle(guest, index, home);
            town.check_memory(guest, index, home)?;
            homes[index] = Some(home);
        }
    }
    let mut order: Vec<usize> = (0..guest.nodes.len()).filter(|&index| homes[index].is_none()).collect();
    order.sort_by_key(|&index| Reverse(town.vcpus[index]));
    let peopled = town.peopled();
    for index in order {
        let home = match mode {
            Mode::Spread => peopled.get(index * peopled.len() / guest.nodes.len()).copied(),
            _ => peopled.iter().copied().min_by_key(|&home| town.key(guest, index, home, mode)),
        };
        // A host has a usable CPU, so some node is peopled.
        let home = home.unwrap_or(0);
        town.settle(guest, index, home);
        homes[index] = Some(home);
    }
    Ok(homes.into_iter().map(|home| home.unwrap_or(0)).collect())
}

fn no_such_node(host: &HostTopology, guest: &Guest, index: usize, wish: HostNode) -> PlacementError {
    let existing: topology::cpu_set::CpuSet<HostNode> = host.nodes().iter().map(|node| node.id).collect();
    PlacementError::NoSuchNode { guest: guest.nodes[index].id, host: wish, existing: existing.to_string() }
}

/// What is left on every host node as guest nodes settle.
struct Town<'h> {
    host: &'h HostTopology,
    /// vCPUs of every guest node.
    vcpus: Vec<usize>,
    /// Vacant CPUs of every host node, as threads and as whole cores.
    threads: Vec<usize>,
    cores: Vec<usize>,
    usable: Vec<usize>,
    /// Memory promised on every host node, in bytes.
    promised: Vec<u64>,
    settled: Vec<usize>,
}

impl<'h> Town<'h> {
    fn new(floor: &Floor<'h>, guest: &Guest) -> Self {
        let count = floor.host.nodes().len();
        let mut town = Self {
            host: floor.host,
            vcpus: vec![0; guest.nodes.len()],
            threads: vec![0; count],
            cores: vec![0; count],
            usable: vec![0; count],
            promised: vec![0; count],
            settled: Vec::new(),
        };
        for vcpu in &guest.vcpus {
            town.vcpus[vcpu.node] += 1;
        }
        for cpu in floor.usable() {
            town.usable[floor.host.cpus()[cpu].node] += 1;
        }
        let vacant = floor.vacant(None, 0, 0);
        for (&cpu, &sharers) in vacant.iter().zip(&floor.sharers(&vacant)) {
            let node = floor.host.cpus()[cpu].node;
            town.threads[node] += 1;
            town.cores[node] += usize::from(sharers == 0);
        }
        town
    }

    /// Host nodes with a usable CPU.
    fn peopled(&self) -> Vec<usize> {
        (0..self.usable.len()).filter(|&node| self.usable[node] > 0).collect()
    }

    fn settle(&mut self, guest: &Guest, index: usize, home: usize) {
        self.threads[home] = self.threads[home].saturating_sub(self.vcpus[index]);
        self.cores[home] = self.cores[home].saturating_sub(self.vcpus[index]);
        self.promised[home] = self.promised[home].saturating_add(guest.nodes[index].memory_bytes);
        self.settled.push(home);
    }

    fn check_memory(&self, guest: &Guest, index: usize, home: usize) -> Result<(), PlacementError> {
        let node = &self.host.nodes()[home];
        match node.free_bytes {
            Some(free_bytes) if free_bytes < self.promised[home] => Err(PlacementError::NodeFull {
                guest: guest.nodes[index].id,
                host: node.id,
                wanted_bytes: self.promised[home],
                free_bytes,
            }),
            _ => Ok(()),
        }
    }

    /// Smaller is better.
    fn key(&self, guest: &Guest, index: usize, home: usize, mode: &Mode) -> impl Ord + use<> {
        let wanted = self.promised[home].saturating_add(guest.nodes[index].memory_bytes);
        let memory = self.host.nodes()[home].free_bytes.is_some_and(|free| free < wanted);
        let pack = *mode == Mode::Pack;
        let vcpus = self.vcpus[index];
        let taken = if pack { 0 } else { self.settled.iter().filter(|&&other| other == home).count() };
        let far: u32 = self.settled.iter().map(|&other| u32::from(self.host.distance(other, home))).sum();
        let room = if pack { self.threads[home] } else { usize::MAX - self.cores[home] };
        (memory, self.threads[home] < vcpus, !pack && self.cores[home] < vcpus, taken, far, room, home)
    }
}
