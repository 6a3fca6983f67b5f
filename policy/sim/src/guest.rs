// SPDX-License-Identifier: Apache-2.0
//! What guests and processes do: a program of steps that each vCPU repeats.
//!
//! Invariant: a program is data. The engine draws its durations from the task's own random stream, so that the same seed
//! gives the same guest under every policy.

use policy::pause::PauseConfig;

use crate::rng::Rng;

/// A random duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its mean in nanoseconds.
    pub mean_ns: u64,
    /// How it varies.
    pub spread: Spread,
}

/// How a duration varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Not at all.
    Fixed,
    /// From half to one and a half times the mean.
    #[default]
    Around,
    /// Exponentially: most are short, few are long.
    Exponential,
}

impl Span {
    /// A duration that does not vary.
    #[must_use]
    pub const fn fixed(mean_ns: u64) -> Self {
        Self { mean_ns, spread: Spread::Fixed }
    }

    pub(crate) fn draw(self, rng: &mut Rng) -> u64 {
        match self.spread {
            Spread::Fixed => self.mean_ns,
            Spread::Around => rng.around(self.mean_ns),
            Spread::Exponential => rng.exponential(self.mean_ns),
        }
    }
}

/// How a lock is passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockKind {
    /// First come, first served; all waiters watch one cache line, so that passing it on costs more the more spin.
    #[default]
    Ticket,
    /// First come, first served; each waiter watches its own line (MCS, the kernel's queued spinlock).
    Queued,
    /// Whoever is running and looks first gets it.
    Unfair,
    /// Passed from vCPU to vCPU by index, whether it wants it or not.
    Ring,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes. `memory` is the part of it that waits for memory, in 1024ths; `kernel` says in which mode.
    Work {
        /// How long on a CPU alone with its memory near.
        span: Span,
        /// Guest kernel mode: only there does Intel's pause-loop exiting see spinning.
        kernel: bool,
        /// Share of the time spent on memory.
        memory: u64,
    },
    /// Waits for a lock of the VM, by index; `halts` says whether the waiter sleeps instead of spinning.
    Acquire {
        /// Which.
        lock: usize,
        /// Sleeps.
        halts: bool,
        /// Interrupts are off until the release.
        irqs_off: bool,
    },
    /// Lets the lock go.
    Release {
        /// Which.
        lock: usize,
    },
    /// Interrupts all other vCPUs of the VM that are not halted, and spins until each has answered.
    Shootdown,
    /// Waits until all vCPUs of the VM are here.
    Barrier {
        /// Sleeps instead of spinning.
        halts: bool,
    },
    /// Sleeps on a timer.
    Sleep {
        /// How long.
        span: Span,
    },
    /// Sends a message to the partner: vCPU 0 and 1, 2 and 3, and so on are pairs.
    Send {
        /// Cache lines of it.
        lines: u64,
    },
    /// Sleeps until a message comes.
    Receive,
}

/// What tells the monitor that a vCPU spins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nothing.
    #[default]
    None,
    /// The tracepoint of hardware pause-loop exits, every `every`-th without a reschedule in between.
    Tracepoint {
        /// Exits for each event.
        every: u32,
    },
    /// The guest writes the pause port after it has spun for so long, and again after as long.
    Port {
        /// Time of the spins before a write.
        after_ns: u64,
    },
    /// A vCPU that ran so long without an exit is stopped and looked at.
    Sampler {
        /// The window.
        window_ns: u64,
    },
}

/// What is done about a pause event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// `sched_yield`, always.
    Yield,
    /// Wakes the named owner and blocks, always, for at most so long.
    Park {
        /// Bound in nanoseconds.
        bound_ns: u64,
    },
    /// Asks [`policy::pause::decide`].
    Policy(PauseConfig),
}

/// Which `kvm_vcpu_on_spin` the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handler {
    /// 3.8: tries whoever is not halted and not in guest mode, running or not, and takes a reference to everybody's task
    /// on the way, two atomic operations on a line that its CPU has (`kvm_vcpu_yield_to`, `get_pid_task`).
    Linux38,
    /// 6.12: tries only who is ready.
    #[default]
    Linux612,
}

/// What stands between a spinning vCPU and the host: one arm of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// Hardware pause-loop exits, handled by the kernel's `kvm_vcpu_on_spin`.
    pub kernel: bool,
    /// Which handler that is.
    pub handler: Handler,
    /// The kernel's bail-out for lone tasks (seed yield-to-bail-out). Off: as before 3.9.
    pub bail_out: bool,
    /// What the monitor sees.
    pub source: Source,
    /// What it does.
    pub action: Action,
    /// Whether the policy is told where CPUs lie, so that nearer candidates come first.
    pub locality: bool,
}

impl Arm {
    /// Nobody sees the spinning: PAUSE exits are off, and there is no monitor that watches.
    pub const OFF: Self = Self {
        kernel: false,
        handler: Handler::Linux612,
        bail_out: true,
        source: Source::None,
        action: Action::Nothing,
        locality: true,
    };
}

/// Hardware pause-loop exiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ple {
    /// First window. Default 4096 cycles of 3 GHz, 1365 ns (`ple_window`).
    pub window_ns: u64,
    /// Factor by which an exit grows it. Default 2 (`ple_window_grow`).
    pub grow: u64,
    /// Largest window. Default: no limit below 2^32 cycles (`ple_window_max`).
    pub max_ns: u64,
    /// Exits also in guest user mode. Default off, as on Intel.
    pub user_mode: bool,
}

impl Default for Ple {
    fn default() -> Self {
        Self { window_ns: 1_365, grow: 2, max_ns: 1_431_655_765, user_mode: false }
    }
}

/// Where the tasks of a group run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placing {
    /// Anywhere among the allowed CPUs, as the host's scheduler likes.
    #[default]
    Free,
    /// vCPU `n` on the allowed CPU `n`, wrapping.
    Pinned,
    /// As [`policy::placement::plan`] says, and then as [`policy::placement::Balancer`] does.
    Policy(policy::placement::Config),
}

/// A virtual machine, or a group of processes.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name in reports.
    pub name: String,
    /// vCPUs, or threads.
    pub vcpus: usize,
    /// Programs; vCPU `n` runs the one of index `n` modulo their number.
    pub programs: Vec<Vec<Op>>,
    /// Its locks.
    pub locks: Vec<LockKind>,
    /// CPUs it may use, as dense indices; empty for all.
    pub cpus: Vec<usize>,
    /// Placement.
    pub placing: Placing,
    /// Nodes of the guest: vCPUs are split evenly, and memory of node `n` is on host node `memory[n]`. Empty: memory is
    /// where each task starts.
    pub memory: Vec<usize>,
    /// Memory that its threads use, in bytes, laid out where they touch it first and moved by the kernel's NUMA balancing.
    /// Zero: `memory` alone says where it is, and it stays there.
    pub resident_bytes: u64,
    /// Whether each thread has a part of that memory for itself, instead of all using all of it.
    pub private: bool,
    /// Processes of the host: halting is no exit and interrupts are none of a guest.
    pub native: bool,
    /// What is done about spinning.
    pub arm: Arm,
    /// Hardware pause loops.
    pub ple: Ple,
}
