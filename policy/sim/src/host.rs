// SPDX-License-Identifier: Apache-2.0
//! The host of the model: where its CPUs lie, and what its kernel and its hardware cost.
//!
//! Every default is a documented fact or a measurement, with its source; none was chosen to meet a result.
//! Invariant: CPUs are dense indices into [`HostTopology::cpus`], and every time is in nanoseconds.

use policy::pause::Locality;
use topology::host::HostTopology;

use crate::fair::YieldKind;

/// How far apart two CPUs are, nearest first; the index into the cost tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Threads of one core.
    Core,
    /// One cluster (shared L2).
    Cluster,
    /// One last-level cache.
    Llc,
    /// One node.
    Node,
    /// Different nodes.
    Remote,
}

/// One cost for each [`Distance`].
pub type ByDistance = [u64; 6];

/// In which order a wake-up looks for an idle CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeScan {
    /// The last-level cache as a whole (up to 6.6).
    #[default]
    Llc,
    /// The cluster, then the rest of the cache (commit 8881e1639f1f, 6.7).
    Cluster,
}

/// How many CPUs a wake-up may look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanBudget {
    /// All of the cache.
    #[default]
    All,
    /// The kernel's curve, with its end at about 85 % utilisation (commit 70fb5ccf2ebb).
    Kernel,
    /// [`policy::placement::scan_budget`]: the same curve, never below one.
    Policy,
}

/// When a CPU that runs out of work looks for some elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewIdle {
    /// Never.
    Off,
    /// Always.
    Always,
    /// Unless it is idle for less than looking costs (commit 9d783c8dd112, 5.16).
    #[default]
    Gated,
    /// As [`policy::placement::rate::CpuRate`] says: the gate, the clamp, and the long interval above 80 %.
    Rated,
}

/// Which idle CPU may take work from which, when CPUs are not equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsymRule {
    /// Ranks are ignored.
    #[default]
    Off,
    /// As before 4.7: the idle CPU takes from the first busy CPU that ranks below it.
    First,
    /// Commit 1f621e028baf: from the least preferred busy CPU.
    LeastPreferred,
}

/// The kernel's NUMA balancing: how a task looks for a CPU nearer to its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumaBalancing {
    /// Not at all; memory stays where it is.
    #[default]
    Off,
    /// As in 4.17: whether to move is weighed anew for each CPU.
    PerCpu,
    /// Seed numa-move-once-per-node (4.19): once for each node.
    PerNode,
}

/// What the kernel and the machine of the host cost and how they behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostParams {
    /// Time between ticks. Default 4 ms: `CONFIG_HZ=250`, Debian's and this project's machines'.
    pub tick_ns: u64,
    /// Slice of a task. Default 2.8 ms: `sysctl_sched_base_slice` of 0.7 ms times `1 + log2(min(cpus, 8))` (6.15 and
    /// later, kernel/sched/fair.c), for eight CPUs or more.
    pub slice_ns: u64,
    /// What a yield does.
    pub yields: YieldKind,
    /// Whether a woken task with an earlier deadline takes the CPU at once. Off: 6.6 to 6.18 let a slice run to its end
    /// (`RUN_TO_PARITY`).
    pub wake_preempts: bool,
    /// The task that `yield_to` names runs next if it is eligible, and the CPU it waits for is asked to. Off: 6.6 to 6.18
    /// look at the name only with `NEXT_BUDDY`, which is off (kernel/sched/features.h), and let a slice run to its end. On:
    /// up to 6.5, and from 6.19.
    pub next_buddy: bool,
    /// A switch between tasks. Default 1.5 µs: half of the switch pair of research digest D7.
    pub switch_ns: u64,
    /// How long an idle CPU needs to start on a task: interrupt and leaving the idle state. Default 2 µs, C1 of a server.
    pub idle_exit_ns: u64,
    /// Work that a task does again after it came from a CPU at that distance, its cache being cold. Defaults: research
    /// digest D7, 10 to 100 µs.
    pub refill_ns: ByDistance,
    /// Moving one cache line between CPUs. Defaults: usual figures of a server with shared L2 clusters.
    pub line_ns: ByDistance,
    /// How much slower a thread runs while two, three, four or more of its core's threads are busy, in 1024ths. Default
    /// 1600, 2200, 2800: two threads of a core bring 1.28 times what one does, and more of them not much beyond.
    pub smt_slowdown: [u64; 3],
    /// A core works as if every thread up to its highest busy one were: POWER7 leaves SMT4 for SMT2 and for one thread only
    /// when the higher ones are idle (`CPU_FTR_ASYM_SMT`). Off: what counts is how many are busy.
    pub smt_by_number: bool,
    /// A task that ran so recently is not pulled (`sysctl_sched_migration_cost`, 0.5 ms).
    pub hot_ns: u64,
    /// When a newly idle CPU looks for work.
    pub newidle: NewIdle,
    /// What looking costs for each CPU looked at. Default 50 ns: one remote cache line.
    pub balance_cpu_ns: u64,
    /// What looking costs on top for cgroups (blocked averages). Default 0.
    pub balance_cgroup_ns: u64,
    /// Least time between newly-idle looks under [`NewIdle::Rated`]. Default 1 ms.
    pub balance_interval_ns: u64,
    /// Order of the wake-up scan.
    pub wake_scan: WakeScan,
    /// Budget of the wake-up scan.
    pub scan_budget: ScanBudget,
    /// Looking at one CPU in a wake-up scan. Default 20 ns.
    pub scan_cpu_ns: u64,
    /// The rule for unequal CPUs.
    pub asym: AsymRule,
    /// Whether that rule speaks only between the threads of a core (POWER7's `powerpc_smt_flags`), not between all CPUs of
    /// a node (ITMT).
    pub asym_in_core: bool,
    /// NUMA balancing.
    pub numa: NumaBalancing,
    /// Time between two scans of a thread. Default 1 s (`numa_balancing_scan_period_min_ms`).
    pub numa_scan_ns: u64,
    /// Memory marked by a scan. Default 256 MiB (`numa_balancing_scan_size_mb`).
    pub numa_scan_bytes: u64,
    /// A PAUSE exit until the kernel has handled it. Default 1.2 µs: research digest D7.
    pub ple_exit_ns: u64,
    /// Holding two runqueue locks for one `yield_to`. Default 200 ns.
    pub yield_to_ns: u64,
    /// A forced return to user space and back. Default 3 µs: research digest D7.
    pub forced_exit_ns: u64,
    /// A port exit to user space and back. Default 3 µs.
    pub port_exit_ns: u64,
    /// A `sched_yield` call. Default 500 ns.
    pub yield_call_ns: u64,
    /// Blocking on a futex, and waking another. Default 5 µs: research digest D7, half of park plus wake.
    pub park_call_ns: u64,
    /// A HLT exit up to blocking. Default 2 µs.
    pub halt_exit_ns: u64,
    /// Sending one interrupt. Default 300 ns (virtualised interrupts).
    pub ipi_send_ns: u64,
    /// The guest's handler of one interrupt. Default 1 µs: entry, `invlpg`, end of interrupt.
    pub ipi_handle_ns: u64,
}

impl Default for HostParams {
    fn default() -> Self {
        Self {
            tick_ns: 4_000_000,
            slice_ns: 2_800_000,
            yields: YieldKind::default(),
            wake_preempts: false,
            next_buddy: false,
            switch_ns: 1_500,
            idle_exit_ns: 2_000,
            refill_ns: [0, 1_000, 5_000, 10_000, 30_000, 100_000],
            line_ns: [1, 10, 25, 60, 80, 140],
            smt_slowdown: [1600, 2200, 2800],
            smt_by_number: false,
            hot_ns: 500_000,
            newidle: NewIdle::default(),
            balance_cpu_ns: 50,
            balance_cgroup_ns: 0,
            balance_interval_ns: 1_000_000,
            wake_scan: WakeScan::default(),
            scan_budget: ScanBudget::default(),
            scan_cpu_ns: 20,
            asym: AsymRule::default(),
            asym_in_core: false,
            numa: NumaBalancing::default(),
            numa_scan_ns: 1_000_000_000,
            numa_scan_bytes: 256 << 20,
            ple_exit_ns: 1_200,
            yield_to_ns: 200,
            forced_exit_ns: 3_000,
            port_exit_ns: 3_000,
            yield_call_ns: 500,
            park_call_ns: 5_000,
            halt_exit_ns: 2_000,
            ipi_send_ns: 300,
            ipi_handle_ns: 1_000,
        }
    }
}

/// Groups of one level: who belongs to which, and who is in each.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) of: Vec<usize>,
    pub(crate) members: Vec<Vec<usize>>,
}

impl Level {
    fn new(of: Vec<usize>, groups: usize) -> Self {
        let mut members = vec![Vec::new(); groups];
        for (cpu, &group) in of.iter().enumerate() {
            members[group].push(cpu);
        }
        Self { of, members }
    }

    /// The group of a CPU.
    pub(crate) fn group(&self, cpu: usize) -> &[usize] {
        &self.members[self.of[cpu]]
    }
}

/// The host's shape as the engine reads it, from the same tree that placement uses.
#[derive(Clone, Debug)]
pub struct HostModel {
    pub(crate) topology: HostTopology,
    pub(crate) cores: Level,
    pub(crate) clusters: Level,
    pub(crate) llcs: Level,
    pub(crate) nodes: Level,
    pub(crate) ranks: Vec<u32>,
}

impl HostModel {
    /// The model of a host.
    #[must_use]
    pub fn new(topology: HostTopology) -> Self {
        let cpus = topology.cpus();
        let level =
            |of: fn(&topology::host::Cpu) -> usize, groups: usize| Level::new(cpus.iter().map(of).collect(), groups);
        Self {
            cores: level(|cpu| cpu.core, topology.cores().len()),
            clusters: level(|cpu| cpu.cluster, topology.clusters().len()),
            llcs: level(|cpu| cpu.llc, topology.llcs().len()),
            nodes: level(|cpu| cpu.node, topology.nodes().len()),
            ranks: cpus.iter().map(|cpu| cpu.rank).collect(),
            topology,
        }
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.ranks.len()
    }

    /// How far apart two CPUs are.
    #[must_use]
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        if a == b {
            Distance::Same
        } else if self.cores.of[a] == self.cores.of[b] {
            Distance::Core
        } else if self.clusters.of[a] == self.clusters.of[b] {
            Distance::Cluster
        } else if self.llcs.of[a] == self.llcs.of[b] {
            Distance::Llc
        } else if self.nodes.of[a] == self.nodes.of[b] {
            Distance::Node
        } else {
            Distance::Remote
        }
    }

    /// Where every CPU lies, as the pause policy wants it, by CPU number.
    pub(crate) fn localities(&self) -> Vec<Option<Locality>> {
        let cpus = self.topology.cpus();
        let mut places = vec![None; cpus.last().map_or(0, |cpu| cpu.id.index() + 1)];
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        for cpu in cpus {
            let node = self.topology.nodes()[cpu.node].id;
            places[cpu.id.index()] = Some(Locality { cluster: number(cpu.cluster), llc: number(cpu.llc), node });
        }
        places
    }
}
