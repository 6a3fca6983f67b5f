// SPDX-License-Identifier: Apache-2.0
//! Placement: [`policy::placement`] run on the model, as the monitor runs it on a host.

use policy::placement::{
    Balancer, CpuLoad, FULL, Guest, GuestCpu, GuestNode, Mode, Runqueue, Snapshot, VcpuLoad, Wishes, plan,
};
use policy::time::Nanos;
use topology::id::NodeId;

use super::state::State;
use super::world::{SimError, World};
use crate::guest::Placing;

/// Memory of a guest node: enough to be counted, too little to fill a host node.
const NODE_BYTES: u64 = 1 << 30;

impl World {
    /// The guest of a VM as placement sees it.
    fn guest(&self, vm: usize) -> Guest {
        let machine = &self.vms[vm].vm;
        let count = machine.memory.len().max(1);
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let vcpu = |at: usize| GuestCpu { node: at * count / machine.vcpus, cluster: number(at / 4), core: number(at) };
        let node = |at: usize| GuestNode { id: NodeId(number(at)), memory_bytes: NODE_BYTES, host_node: None };
        Guest { vcpus: (0..machine.vcpus).map(vcpu).collect(), nodes: (0..count).map(node).collect() }
    }

    /// Places the vCPUs of a VM by the policy and gets its balancer going.
    pub(crate) fn place_by_policy(&mut self, vm: usize) -> Result<(), SimError> {
        let Placing::Policy(config) = self.vms[vm].vm.placing else { return Ok(()) };
        let guest = self.guest(vm);
        let wishes = Wishes { mode: Mode::Auto, rules: config.rules, claims: Vec::new() };
        let plan = plan(&self.host.topology, &guest, &wishes)?;
        let index = |place: &policy::placement::Place| self.host.topology.index_of(place.decision.to).unwrap_or(0);
        self.vms[vm].places = plan.places.iter().map(index).collect();
        let balancer = Balancer::new(self.host.topology.clone(), guest, config, Nanos(self.now));
        self.vms[vm].balancer = Some(Box::new(balancer));
        self.apply_places(vm);
        self.timers.set(self.balance_slot(vm), config.period_ns);
        Ok(())
    }

    /// A task alone on its CPU is pinned there, and so are both of a pair that is together on one; others that share roam
    /// among the VM's CPUs of the node ([`policy::placement::affinities`]).
    fn apply_places(&mut self, vm: usize) {
        let places = self.vms[vm].places.clone();
        let mut own = vec![0; self.cpus.len()];
        places.iter().for_each(|&cpu| own[cpu] += 1);
        for (at, &cpu) in places.iter().enumerate() {
            let task = self.vms[vm].first + at;
            self.tasks[task].pin = (own[cpu] == 1).then_some(cpu);
        }
        for vcpu in self.vms[vm].pairs.pairing.together() {
            let task = self.vms[vm].first + vcpu.index();
            self.tasks[task].pin = Some(places[vcpu.index()]);
        }
    }

    /// One pass of the balancer of a VM.
    pub(crate) fn balance(&mut self, vm: usize) {
        let Some(mut balancer) = self.vms[vm].balancer.take() else { return };
        let passed = (self.now - self.vms[vm].balance_since).max(1);
        let vcpus = self.vcpu_loads(vm, passed);
        let cpus = self.cpu_loads(vm, passed);
        let memory = self.memory_of(vm);
        let pairs = self.wished_pairs(vm);
        let snapshot = Snapshot { now: Nanos(self.now), vcpus: &vcpus, cpus: &cpus, memory: &memory, pairs: &pairs };
        let pass = balancer.pass(&snapshot);
        self.pairs_done(vm, &pass.moves);
        self.vms[vm].balancer = Some(balancer);
        self.vms[vm].balance_since = self.now;
        for step in &pass.moves {
            let Some(to) = self.host.topology.index_of(step.to) else { continue };
            let from = self.vms[vm].places[step.vcpu.index()];
            self.vms[vm].places[step.vcpu.index()] = to;
            if let Some(other) = step.swap_with {
                self.vms[vm].places[other.index()] = from;
            }
        }
        self.apply_places(vm);
        for at in 0..self.vms[vm].vm.vcpus {
            self.follow_pin(self.vms[vm].first + at);
        }
        self.timers.set(self.balance_slot(vm), pass.next.0);
    }

    /// Moves a task off a CPU it may not run on any more (`sched_setaffinity`).
    fn follow_pin(&mut self, task: usize) {
        let Some(to) = self.tasks[task].pin else { return };
        let from = self.tasks[task].cpu;
        if from == to {
            return;
        }
        let id = self.task_id(task);
        match self.tasks[task].state {
            State::Queued => self.migrate(id, from, to),
            State::Running if self.cpus[from].segment.in_guest() => {
                self.leave_guest(from);
                self.put_back(from, "moved");
                self.migrate(id, from, to);
                self.schedule(from, 0);
            }
            // In an exit, or asleep: the next wake-up or pass finds the pin.
            State::Running | State::Halted | State::Parked => {}
        }
    }

    fn vcpu_loads(&mut self, vm: usize, passed: u64) -> Vec<VcpuLoad> {
        let first = self.vms[vm].first;
        let now = self.now;
        let part = |ns: u64| u32::try_from(ns.min(passed) * u64::from(FULL) / passed).unwrap_or(FULL);
        let mut loads = Vec::with_capacity(self.vms[vm].vm.vcpus);
        for at in 0..self.vms[vm].vm.vcpus {
            let cpu = self.host.topology.cpus()[self.vms[vm].places[at]].id;
            let one = &mut self.tasks[first + at];
            let since = now - one.state_since;
            let ran = one.ledger.running_ns + if one.state == State::Running { since } else { 0 };
            let waited = one.ledger.waiting_ns + if one.state == State::Queued { since } else { 0 };
            let load = VcpuLoad { cpu, running: part(ran - one.run_mark), waiting: part(waited - one.wait_mark) };
            (one.run_mark, one.wait_mark) = (ran, waited);
            loads.push(load);
        }
        loads
    }

    fn cpu_loads(&mut self, vm: usize, passed: u64) -> Vec<CpuLoad> {
        let own = self.vms[vm].first..self.vms[vm].first + self.vms[vm].vm.vcpus;
        let other = |task: &u32| !own.contains(&(*task as usize));

        let now = self.now;
        let load = |one: &mut super::state::Cpu| {
            let idle = one.ledger[0] + if one.segment == super::state::Segment::Idle { now - one.since } else { 0 };
            let share = (idle - one.busy_mark).min(passed) * u64::from(FULL) / passed;
            let busy = FULL - u32::try_from(share).unwrap_or(FULL);
            one.busy_mark = idle;
            one.average = one.average - one.average / 8 + busy / 8;
            let others = one.queue.waiting.iter().chain(&one.current).filter(|task| other(task)).count();
            CpuLoad {
                utilisation: busy,
                average: one.average,
                runqueue: Runqueue { now: u32::try_from(others).ok(), mean: None },
                claims: 0,
                exclusive: false,
                mean_idle_ns: one.mean_idle,
            }
        };
        self.cpus.iter_mut().map(load).collect()
    }

    fn memory_of(&self, vm: usize) -> Vec<Vec<u64>> {
        let nodes = self.host.topology.nodes().len();
        let row = |&home: &usize| (0..nodes).map(|node| if node == home { NODE_BYTES } else { 0 }).collect();
        self.vms[vm].vm.memory.iter().map(row).collect()
    }
}
