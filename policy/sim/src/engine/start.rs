// SPDX-License-Identifier: Apache-2.0
//! Where tasks are when the run begins.

use super::world::World;
use crate::host::{HostModel, Level};

impl World {
    /// Gives every task a first CPU: its own, or the least loaded, as a fork or exec looks for it.
    pub(crate) fn start(&mut self) {
        let mut load = Load::new(&self.host);
        for task in 0..self.tasks.len() {
            let (vm, at) = (self.tasks[task].vm, self.tasks[task].index);
            let machine = &self.vms[vm];
            let place = machine.places.get(at).copied().or(self.tasks[task].pin);
            let fewest = || load.least(&self.host, &machine.allowed);
            let cpu = place.or_else(fewest).unwrap_or(0);
            let memory = &machine.vm.memory;
            let home = memory.get(at * memory.len() / machine.vm.vcpus.max(1)).copied();
            load.add(&self.host, cpu);
            let one = &mut self.tasks[task];
            (one.cpu, one.ran_on, one.home) = (cpu, cpu, home.unwrap_or(self.host.nodes.of[cpu]));
            let id = self.task_id(task);
            // Tasks are somewhere in their slices when the run begins.
            let slice = self.params.slice_ns;
            let lag = self.tasks[task].rng.below(slice);
            self.entities[task].vruntime = lag.cast_signed();
            self.entities[task].deadline = (lag + slice).cast_signed();
            self.cpus[cpu].queue.waiting.push(id);
            self.waiting_total += 1;
            self.touch(task);
        }
        for cpu in 0..self.cpus.len() {
            if !self.cpus[cpu].queue.waiting.is_empty() {
                self.schedule(cpu, 0);
            }
        }
    }
}

/// How many tasks started where.
struct Load {
    cpus: Vec<usize>,
    /// By core, cluster, last-level cache and node.
    groups: [Vec<usize>; 4],
}

impl Load {
    fn new(host: &HostModel) -> Self {
        Self { cpus: vec![0; host.cpus()], groups: levels(host).map(|level| vec![0; level.members.len()]) }
    }

    fn add(&mut self, host: &HostModel, cpu: usize) {
        self.cpus[cpu] += 1;
        self.groups.iter_mut().zip(levels(host)).for_each(|(loads, level)| loads[level.of[cpu]] += 1);
    }

    /// The least loaded CPU of the least loaded core, cluster, cache and node, from the node down, as
    /// `sched_balance_find_dst_group` goes.
    fn least(&self, host: &HostModel, allowed: &[bool]) -> Option<usize> {
        let [core, cluster, llc, node] = levels(host);
        let [cores, clusters, llcs, nodes] = &self.groups;
        (0..allowed.len()).filter(|&cpu| allowed[cpu]).min_by_key(|&cpu| {
            let groups = [nodes[node.of[cpu]], llcs[llc.of[cpu]], clusters[cluster.of[cpu]], cores[core.of[cpu]]];
            (groups, self.cpus[cpu], cpu)
        })
    }
}

fn levels(host: &HostModel) -> [&Level; 4] {
    [&host.cores, &host.clusters, &host.llcs, &host.nodes]
}
