// SPDX-License-Identifier: Apache-2.0
//! What a run brought, as plain numbers.

use super::state::{Account, Counts, TaskLedger};
use super::world::World;

/// What one VM did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Laps of programs, by vCPU.
    pub operations: Vec<u64>,
    /// Time of each vCPU.
    pub ledgers: Vec<TaskLedger>,
    /// Moves between CPUs.
    pub migrations: u64,
    /// Counts.
    pub counts: Counts,
    /// Waits for locks in ns: the median, the 99th and the 99.9th percentile.
    pub lock_wait_ns: [u64; 3],
    /// Whom the policy bailed out for, by [`policy::pause::Reason::index`]; empty without a policy.
    pub bailed: Vec<u64>,
}

/// What a run brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Simulated time in ns.
    pub duration_ns: u64,
    /// Events of the model.
    pub events: u64,
    /// Equal for equal runs.
    pub fingerprint: u64,
    /// Time of all CPUs by [`Account`].
    pub cpu_ns: [u64; Account::COUNT],
    /// VMs in the order of the scenario.
    pub vms: Vec<VmOutcome>,
}

impl VmOutcome {
    /// Laps of all vCPUs.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Jain's index over the laps of the vCPUs, in 1024ths: 1024 is equal, and nothing at all is equal too.
    #[must_use]
    pub fn jain(&self) -> u64 {
        let sum: u128 = self.operations.iter().map(|&n| u128::from(n)).sum();
        let squares: u128 = self.operations.iter().map(|&n| u128::from(n) * u128::from(n)).sum();
        let count = self.operations.len() as u128;
        if squares == 0 {
            return 1024;
        }
        u64::try_from(sum * sum * 1024 / (squares * count)).unwrap_or(1024)
    }

    /// Time its vCPUs span on CPUs, in ns.
    #[must_use]
    pub fn spinning_ns(&self) -> u64 {
        self.ledgers.iter().map(|ledger| ledger.spinning_ns).sum()
    }
}

impl Outcome {
    /// `count` as a rate per simulated second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> u64 {
        let scaled = u128::from(count) * 1_000_000_000 / u128::from(self.duration_ns.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl World {
    /// What the run brought so far. Books what is under way.
    #[must_use]
    pub fn outcome(&mut self) -> Outcome {
        for cpu in 0..self.cpus.len() {
            self.charge(cpu);
        }
        for task in 0..self.tasks.len() {
            self.set_state(task, self.tasks[task].state);
        }
        let mut cpu_ns = [0; Account::COUNT];
        for cpu in &self.cpus {
            cpu_ns.iter_mut().zip(cpu.ledger).for_each(|(sum, ns)| *sum += ns);
        }
        let vms = (0..self.vms.len()).map(|vm| self.vm_outcome(vm)).collect();
        let fingerprint = self.trace.fingerprint();
        Outcome { duration_ns: self.now, events: self.events, fingerprint, cpu_ns, vms }
    }

    fn vm_outcome(&self, vm: usize) -> VmOutcome {
        let machine = &self.vms[vm];
        let tasks = &self.tasks[machine.first..machine.first + machine.vm.vcpus];
        let bailed = machine.policy.as_ref().map_or_else(Vec::new, |policy| policy.driver.bailed());
        VmOutcome {
            name: machine.vm.name.clone(),
            operations: tasks.iter().map(|task| task.operations).collect(),
            ledgers: tasks.iter().map(|task| task.ledger).collect(),
            migrations: tasks.iter().map(|task| task.migrations).sum(),
            counts: machine.counts,
            lock_wait_ns: [500, 990, 999].map(|per_1000| machine.lock_wait.percentile(per_1000)),
            bailed,
        }
    }
}
