// SPDX-License-Identifier: Apache-2.0
//! The world: everything there is, how it is built, and the loop that makes time pass.
//!
//! Invariant: time never goes back, and of two things at the same time the one of the lower slot comes first.

use policy::pause::{HostView, PauseConfig};
use policy::placement::PlacementError;
use policy::placement::rate::CpuRate;
use policy::time::Nanos;
use thiserror::Error;

use super::histogram::Histogram;
use super::numa::Numa;
use super::pairs::Pairs;
use super::state::{Account, Counts, Cpu, Lock, Machine, PolicyState, Segment, State, Task, TaskLedger, Wait};
use super::trace::Trace;
use crate::driver::Driver;
use crate::fair::{Entity, Runqueue, YieldKind};
use crate::guest::{Action, Op, Placing, Source, Vm};
use crate::host::{HostModel, HostParams};
use crate::rng::Rng;
use crate::timers::{NEVER, Timers};

/// Why a world cannot be built or go on.
#[derive(Debug, Error)]
pub enum SimError {
    /// A VM has no vCPUs, or no program.
    #[error("VM `{vm}` has {vcpus} vCPUs and {programs} programs: it needs at least one of each")]
    Empty {
        /// Its name.
        vm: String,
        /// Its vCPUs.
        vcpus: usize,
        /// Its programs.
        programs: usize,
    },
    /// A CPU, node or lock that does not exist.
    #[error("VM `{vm}` names {what} {index}, but there are only {count}: count from 0")]
    OutOfRange {
        /// Its name.
        vm: String,
        /// What.
        what: &'static str,
        /// Which.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// Messages need pairs.
    #[error("VM `{vm}` sends messages between pairs of vCPUs, but has {vcpus} vCPUs: make it an even number")]
    OddPair {
        /// Its name.
        vm: String,
        /// Its vCPUs.
        vcpus: usize,
    },
    /// The placement policy refuses.
    #[error("placement: {0}")]
    Placement(#[from] PlacementError),
    /// Nobody will ever act again.
    #[error(
        "at {now} ns every task waits for another: a program takes a lock that nobody lets go, or waits for a message that nobody sends"
    )]
    Stuck {
        /// When.
        now: u64,
    },
}

/// The model at one moment.
#[derive(Debug)]
pub struct World {
    pub(crate) now: u64,
    pub(crate) events: u64,
    pub(crate) host: HostModel,
    pub(crate) params: HostParams,
    pub(crate) timers: Timers,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) entities: Vec<Entity>,
    pub(crate) vms: Vec<Machine>,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    /// Tasks that wait for a CPU.
    pub(crate) waiting_total: usize,
    pub(crate) idle_in_llc: Vec<u32>,
    /// The kernel's NUMA balancing, if it has any.
    pub(crate) numa: Option<Box<Numa>>,
    /// Some VM has a pause policy.
    pub(crate) views: bool,
}

impl World {
    /// A world at time zero: every task wants a CPU.
    ///
    /// # Errors
    /// [`SimError`] if a VM contradicts itself or the host, or placement refuses.
    pub fn new(host: HostModel, params: HostParams, vms: Vec<Vm>, seed: u64, trace: Trace) -> Result<Self, SimError> {
        vms.iter().try_for_each(|vm| check(vm, &host))?;
        let (cpus, tasks) = (host.cpus(), vms.iter().map(|vm| vm.vcpus).sum::<usize>());
        let llcs = &host.llcs.members;
        let mut world = Self {
            now: 0,
            events: 0,
            timers: Timers::new(cpus + tasks + 2 * vms.len()),
            cpus: vec![new_cpu(); cpus],
            tasks: Vec::with_capacity(tasks),
            entities: vec![Entity::default(); tasks],
            vms: Vec::with_capacity(vms.len()),
            rng: Rng::new(seed, u64::MAX),
            trace,
            waiting_total: 0,
            idle_in_llc: llcs.iter().map(|llc| u32::try_from(llc.len()).unwrap_or(u32::MAX)).collect(),
            numa: None,
            views: vms.iter().any(|vm| matches!(vm.arm.action, Action::Policy(_))),
            host,
            params,
        };
        for vm in vms {
            world.add(vm, seed);
        }
        for vm in 0..world.vms.len() {
            world.place_by_policy(vm)?;
        }
        world.start();
        world.start_numa();
        Ok(world)
    }

    fn add(&mut self, vm: Vm, seed: u64) {
        let (index, first) = (self.vms.len(), self.tasks.len());
        let mut allowed = vec![vm.cpus.is_empty(); self.cpus.len()];
        vm.cpus.iter().for_each(|&cpu| allowed[cpu] = true);
        let usable: Vec<usize> = (0..allowed.len()).filter(|&cpu| allowed[cpu]).collect();
        for at in 0..vm.vcpus {
            let stream = (index as u64) << 32 | at as u64;
            let mut task = new_task(index, at, Rng::new(seed, stream));
            task.program = at % vm.programs.len();
            task.pin = (vm.placing == Placing::Pinned).then(|| usable[at % usable.len()]);
            task.window = vm.ple.window_ns;
            self.tasks.push(task);
        }
        let report_ns = match vm.arm.source {
            Source::Port { after_ns } => after_ns,
            Source::Sampler { window_ns } => window_ns,
            Source::None | Source::Tracepoint { .. } => NEVER,
        };
        let policy = match vm.arm.action {
            Action::Policy(config) => {
                let config = granted(config, self.params.yields, vm.arm.kernel);
                let cpus = u32::try_from(usable.len()).unwrap_or(u32::MAX);
                let places = if vm.arm.locality { self.host.localities() } else { Vec::new() };
                let view = HostView::new(vm.vcpus, places, cpus);
                Some(Box::new(PolicyState { driver: Driver::new(view, config), dirty: Vec::new() }))
            }
            Action::Nothing | Action::Yield | Action::Park { .. } => None,
        };
        let new_lock = |&kind| Lock { kind, owner: None, waiters: Default::default(), turn: 0, last_cpu: usable[0] };
        self.vms.push(Machine {
            locks: vm.locks.iter().map(new_lock).collect(),
            allowed,
            first,
            at_barrier: Vec::new(),
            last_boosted: vm.vcpus - 1,
            policy,
            balancer: None,
            pairs: Pairs::default(),
            places: Vec::new(),
            balance_since: 0,
            counts: Counts::default(),
            lock_wait: Histogram::default(),
            report_ns,
            vm,
        });
    }

    /// Lets time pass until `end`.
    ///
    /// # Errors
    /// [`SimError::Stuck`] if nothing can happen any more.
    pub fn run_until(&mut self, end: u64) -> Result<(), SimError> {
        let tasks_at = self.cpus.len();
        let vms_at = tasks_at + self.tasks.len();
        let numa_at = vms_at + self.vms.len();
        loop {
            let (time, slot) = self.timers.first();
            if time == NEVER {
                return Err(SimError::Stuck { now: self.now });
            }
            if time > end {
                self.now = end;
                return Ok(());
            }
            self.now = time;
            self.events += 1;
            self.trace.mark(time, slot);
            if slot < tasks_at {
                self.cpu_event(slot);
            } else if slot < vms_at {
                self.task_event(slot - tasks_at);
            } else if slot < numa_at {
                self.balance(slot - vms_at);
            } else {
                self.numa_scan(slot - numa_at);
            }
        }
    }

    /// The record so far.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Has the policy of every VM keep a log of its decisions; call it before time passes.
    pub fn keep_logs(&mut self) {
        self.vms.iter_mut().filter_map(|vm| vm.policy.as_mut()).for_each(|policy| policy.driver.keep_log());
    }

    /// The decision log of a VM, by index; `None` if it has no policy or keeps none.
    #[must_use]
    pub fn decision_log(&self, vm: usize) -> Option<&[u8]> {
        self.vms.get(vm)?.policy.as_ref()?.driver.log()
    }

    /// Names of all tasks, as `vm/index`.
    #[must_use]
    pub fn task_names(&self) -> Vec<String> {
        self.tasks.iter().map(|task| format!("{}/{}", self.vms[task.vm].vm.name, task.index)).collect()
    }

    pub(crate) fn slot(&self, task: usize) -> usize {
        self.cpus.len() + task
    }

    pub(crate) fn balance_slot(&self, vm: usize) -> usize {
        self.cpus.len() + self.tasks.len() + vm
    }

    pub(crate) fn task_id(&self, task: usize) -> u32 {
        u32::try_from(task).unwrap_or(u32::MAX)
    }

    /// What every book says, for tests: the time of every CPU and of every task, and tasks that sleep on a wake-up.
    #[must_use]
    pub fn audit(&mut self) -> Audit {
        let _ = self.outcome();
        let total = |ledger: &TaskLedger| ledger.running_ns + ledger.waiting_ns + ledger.halted_ns + ledger.parked_ns;
        let asleep = |task: &&Task| task.state == State::Halted && (task.satisfied || !task.interrupts.is_empty());
        let on = |task: usize| {
            let id = u32::try_from(task).ok();
            let running = self.cpus.iter().filter(|cpu| cpu.current == id).count();
            let waiting =
                self.cpus.iter().flat_map(|cpu| &cpu.queue.waiting).filter(|&&other| Some(other) == id).count();
            let wanted = match self.tasks[task].state {
                State::Running => (1, 0),
                State::Queued => (0, 1),
                State::Halted | State::Parked => (0, 0),
            };
            (running, waiting) != wanted
        };
        Audit {
            cpu_ns: self.cpus.iter().map(|cpu| cpu.ledger.iter().sum()).collect(),
            task_ns: self.tasks.iter().map(|task| total(&task.ledger)).collect(),
            lost_wakeups: self.tasks.iter().filter(asleep).count(),
            misplaced: (0..self.tasks.len()).filter(|&task| on(task)).count(),
        }
    }
}

/// What the monitor grants of the mechanisms: where the kernel's yield lets nobody else run, its probe finds that out.
fn granted(mut config: PauseConfig, yields: YieldKind, pause_exits: bool) -> PauseConfig {
    config.mechanisms.pause_exits = pause_exits;
    config.mechanisms.sched_yield &= yields != YieldKind::DeadlineOnly;
    config
}

/// What must add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Booked time of every CPU.
    pub cpu_ns: Vec<u64>,
    /// Booked time of every task.
    pub task_ns: Vec<u64>,
    /// Tasks that sleep although what they wait for has come.
    pub lost_wakeups: usize,
    /// Tasks that are on a CPU or queue they should not be on, or on none.
    pub misplaced: usize,
}

fn check(vm: &Vm, host: &HostModel) -> Result<(), SimError> {
    let name = || vm.name.clone();
    let programs = vm.programs.iter().filter(|program| !program.is_empty()).count();
    if vm.vcpus == 0 || programs == 0 || programs < vm.programs.len() {
        return Err(SimError::Empty { vm: name(), vcpus: vm.vcpus, programs });
    }
    let within = |what: &'static str, index: usize, count: usize| {
        if index < count { Ok(()) } else { Err(SimError::OutOfRange { vm: name(), what, index, count }) }
    };
    vm.cpus.iter().try_for_each(|&cpu| within("CPU", cpu, host.cpus()))?;
    vm.memory.iter().try_for_each(|&node| within("node", node, host.nodes.members.len()))?;
    for op in vm.programs.iter().flatten() {
        match *op {
            Op::Acquire { lock, .. } | Op::Release { lock } => within("lock", lock, vm.locks.len())?,
            Op::Send { .. } if vm.vcpus % 2 == 1 => return Err(SimError::OddPair { vm: name(), vcpus: vm.vcpus }),
            _ => {}
        }
    }
    Ok(())
}

fn new_cpu() -> Cpu {
    Cpu {
        current: None,
        queue: Runqueue::default(),
        segment: Segment::Idle,
        since: 0,
        end: NEVER,
        tick_at: NEVER,
        resched: false,
        last: None,
        lock_free: 0,
        idle_since: 0,
        mean_idle: 1_000_000,
        ledger: [0; Account::COUNT],
        rate: CpuRate::new(Nanos(0)),
        busy_mark: 0,
        average: 0,
    }
}

fn new_task(vm: usize, index: usize, rng: Rng) -> Task {
    Task {
        vm,
        index,
        numa_rng: rng.clone(),
        rng,
        state: State::Queued,
        state_since: 0,
        ledger: TaskLedger::default(),
        cpu: 0,
        pin: None,
        ran_on: 0,
        last_ran: 0,
        preempted: false,
        program: 0,
        at: 0,
        work_left: 0,
        speed: 1024,
        kernel: false,
        wait: Wait::Nothing,
        waits_halted: false,
        wait_since: 0,
        satisfied: false,
        line_from: 0,
        lines: 1,
        irqs_off: false,
        interrupts: Vec::new(),
        acks_left: 0,
        messages: Vec::new(),
        home: 0,
        window: 0,
        exits_in_row: 0,
        in_spin_loop: false,
        eligible: false,
        report_left: NEVER,
        spin_from: 0,
        spin_by_window: false,
        quiet_until: 0,
        reported: false,
        named: false,
        named_owner: None,
        descheduled: false,
        progress: 0,
        pending: None,
        woken_by_name: false,
        dirty: false,
        operations: 0,
        migrations: 0,
        run_mark: 0,
        wait_mark: 0,
    }
}
