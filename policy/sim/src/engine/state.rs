// SPDX-License-Identifier: Apache-2.0
//! The state of CPUs, tasks and virtual machines, as the parts of the engine share it.
//!
//! Invariant: a task that runs is the current one of exactly one CPU; one that waits is on exactly one runqueue.

use policy::placement::Balancer;

use super::histogram::Histogram;
use super::pairs::Pairs;
use crate::driver::Driver;
use crate::fair::Runqueue;
use crate::guest::{LockKind, Vm};
use crate::rng::Rng;

/// What a CPU's time went to. The accounts of all CPUs add up to the time that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// Nothing to run.
    Idle,
    /// Tasks' work.
    Work,
    /// Spinning, the transfer of the lock's cache line included.
    Spin,
    /// Interrupt handlers of guests.
    Interrupt,
    /// Exits: the kernel, the monitor, the policy.
    Exit,
    /// Switching, with cold caches and waits for runqueue locks.
    Switch,
    /// Looking for work elsewhere.
    Balance,
}

impl Account {
    /// Number of accounts.
    pub const COUNT: usize = 7;
    /// Names in reports, in order.
    pub const NAMES: [&'static str; Self::COUNT] = ["idle", "work", "spin", "interrupt", "exit", "switch", "balance"];
}

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Idle,
    /// Becoming ready to run the current task.
    Switch,
    /// The current task's work.
    Work,
    /// The current task spins.
    Spin,
    /// The current task has got what it span for and fetches the cache line.
    Claim,
    /// The current task handles one interrupt.
    Handler,
    /// An exit; what follows it.
    Exit(Then),
    /// Looking for work.
    Balance,
}

/// What an exit ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Back into the guest.
    Return,
    /// The kernel's pause-loop handler.
    OnSpin,
    /// The monitor's decision.
    Decide,
    /// The task blocks.
    Halt,
}

impl Segment {
    pub(crate) const fn account(self) -> Account {
        match self {
            Self::Idle => Account::Idle,
            Self::Switch => Account::Switch,
            Self::Work => Account::Work,
            Self::Spin | Self::Claim => Account::Spin,
            Self::Handler => Account::Interrupt,
            Self::Exit(_) => Account::Exit,
            Self::Balance => Account::Balance,
        }
    }

    /// Whether the current task is in the guest, where the scheduler may take the CPU at once.
    pub(crate) const fn in_guest(self) -> bool {
        matches!(self, Self::Work | Self::Spin | Self::Claim | Self::Handler)
    }
}

/// One CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) current: Option<u32>,
    pub(crate) queue: Runqueue,
    pub(crate) segment: Segment,
    pub(crate) since: u64,
    pub(crate) end: u64,
    pub(crate) tick_at: u64,
    pub(crate) resched: bool,
    /// The task that ran here last.
    pub(crate) last: Option<u32>,
    /// When the runqueue's lock is free.
    pub(crate) lock_free: u64,
    pub(crate) idle_since: u64,
    pub(crate) mean_idle: u64,
    pub(crate) ledger: [u64; Account::COUNT],
    pub(crate) rate: policy::placement::rate::CpuRate,
    /// Busy time when the present window began, and the average of windows in 1024ths.
    pub(crate) busy_mark: u64,
    pub(crate) average: u32,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Queued,
    Halted,
    Parked,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    Lock(usize),
    Acks,
    Barrier,
    Message,
    Timer,
}

/// A yield or park whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) target: Option<usize>,
    pub(crate) parked: bool,
    pub(crate) since: u64,
}

/// Times of one task, in nanoseconds; they add up to the time that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskLedger {
    /// On a CPU, whatever it did there.
    pub running_ns: u64,
    /// Wanted a CPU and had none.
    pub waiting_ns: u64,
    /// Halted or asleep.
    pub halted_ns: u64,
    /// Blocked by the policy.
    pub parked_ns: u64,
    /// Of the running time: spinning.
    pub spinning_ns: u64,
}

/// One vCPU or thread.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) vm: usize,
    pub(crate) index: usize,
    pub(crate) rng: Rng,
    /// What its hinting faults fall on: a stream of its own, so that scans change no program.
    pub(crate) numa_rng: Rng,
    pub(crate) state: State,
    pub(crate) state_since: u64,
    pub(crate) ledger: TaskLedger,
    /// CPU it is on or was on last.
    pub(crate) cpu: usize,
    pub(crate) pin: Option<usize>,
    /// CPU whose caches hold its data.
    pub(crate) ran_on: usize,
    pub(crate) last_ran: u64,
    /// Preempted against its will.
    pub(crate) preempted: bool,
    // What it does.
    pub(crate) program: usize,
    pub(crate) at: usize,
    pub(crate) work_left: u64,
    pub(crate) speed: u64,
    pub(crate) kernel: bool,
    pub(crate) wait: Wait,
    pub(crate) waits_halted: bool,
    pub(crate) wait_since: u64,
    pub(crate) satisfied: bool,
    /// CPU from which the awaited line comes.
    pub(crate) line_from: usize,
    pub(crate) lines: u64,
    pub(crate) irqs_off: bool,
    pub(crate) interrupts: Vec<u32>,
    pub(crate) acks_left: usize,
    pub(crate) messages: Vec<(usize, u64)>,
    pub(crate) home: usize,
    // Pause loops.
    pub(crate) window: u64,
    pub(crate) exits_in_row: u32,
    pub(crate) in_spin_loop: bool,
    pub(crate) eligible: bool,
    pub(crate) report_left: u64,
    pub(crate) spin_from: u64,
    pub(crate) spin_by_window: bool,
    pub(crate) quiet_until: u64,
    pub(crate) reported: bool,
    pub(crate) named: bool,
    pub(crate) named_owner: Option<usize>,
    pub(crate) descheduled: bool,
    pub(crate) progress: u32,
    pub(crate) pending: Option<Pending>,
    pub(crate) woken_by_name: bool,
    pub(crate) dirty: bool,
    // Results.
    pub(crate) operations: u64,
    pub(crate) migrations: u64,
    pub(crate) run_mark: u64,
    pub(crate) wait_mark: u64,
}

/// A lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) kind: LockKind,
    pub(crate) owner: Option<u32>,
    pub(crate) waiters: std::collections::VecDeque<u32>,
    /// Whose turn it is in a ring, as an index into the VM.
    pub(crate) turn: usize,
    pub(crate) last_cpu: usize,
}

/// Counts of one VM. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hardware pause-loop exits.
    pub pause_exits: u64,
    /// Pause events that reached the monitor.
    pub events: u64,
    /// Yields of the kernel's handler that were tried.
    pub kernel_attempted: u64,
    /// And those that named a task that was then favoured.
    pub kernel_boosted: u64,
    /// Locks passed on.
    pub hand_overs: u64,
    /// Yields and parks of the monitor that were made.
    pub acted: u64,
    /// Outcomes: boosted, not boosted, nobody waiting.
    pub outcomes: [u64; 3],
    /// Halts.
    pub halts: u64,
    /// Times a CPU was taken from a task against its will.
    pub preemptions: u64,
}

/// A virtual machine at run time.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) vm: Vm,
    pub(crate) allowed: Vec<bool>,
    /// Its tasks are those from here on.
    pub(crate) first: usize,
    pub(crate) locks: Vec<Lock>,
    pub(crate) at_barrier: Vec<u32>,
    pub(crate) last_boosted: usize,
    pub(crate) policy: Option<Box<PolicyState>>,
    pub(crate) balancer: Option<Box<Balancer>>,
    pub(crate) pairs: Pairs,
    pub(crate) places: Vec<usize>,
    pub(crate) balance_since: u64,
    /// Spinning time between two reports of the pause source.
    pub(crate) report_ns: u64,
    pub(crate) counts: Counts,
    pub(crate) lock_wait: Histogram,
}

/// What the pause policy of one VM is handed.
#[derive(Clone, Debug)]
pub(crate) struct PolicyState {
    pub(crate) driver: Driver,
    /// Tasks of which it has an old picture.
    pub(crate) dirty: Vec<u32>,
}
