// SPDX-License-Identifier: Apache-2.0
//! From what `/proc` counts to loads over a window. Pure.
//!
//! Invariant: a counter that stands still, runs backwards or is missing is no load; shares never exceed a whole CPU.

use std::collections::BTreeMap;

use policy::placement::{Claim, CpuLoad, FULL, Runqueue, VcpuLoad};
use policy::time::Nanos;
use topology::host::HostTopology;
use topology::id::HostCpu;

/// Over how long the average of a CPU's load reaches back.
const AVERAGE_NS: u64 = 4_000_000_000;

/// What a thread has had, `/proc/self/task/TID/schedstat` (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// Time on a CPU.
    pub run_ns: u64,
    /// Time runnable and waiting.
    pub wait_ns: u64,
}

impl TaskTimes {
    /// Reads the file's first two numbers.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(str::parse);
        Some(Self { run_ns: words.next()?.ok()?, wait_ns: words.next()?.ok()? })
    }
}

/// What a CPU has had, in ticks of `/proc/stat` (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Ticks that were not idle.
    pub busy: u64,
    /// All ticks.
    pub all: u64,
}

/// The CPUs of `/proc/stat`. Lines that cannot be read are left out.
#[must_use]
pub fn cpu_times(stat: &str) -> BTreeMap<HostCpu, CpuTimes> {
    let cpu = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let id = name.strip_prefix("cpu")?.parse().ok().map(HostCpu)?;
        // Guest time, behind the first eight, is contained in user time.
        let ticks: Vec<u64> = rest.split_ascii_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let (idle, iowait) = (*ticks.get(3)?, ticks.get(4).copied().unwrap_or(0));
        let all: u64 = ticks.iter().sum();
        Some((id, CpuTimes { busy: all.saturating_sub(idle + iowait), all }))
    };
    stat.lines().take_while(|line| line.starts_with("cpu")).filter_map(cpu).collect()
}

/// For how long tasks have waited on each CPU, all together, in ns: the eighth number of a line of `/proc/schedstat`
/// (Documentation/scheduler/sched-stats.rst). The seventh, for how long they ran, is no help: it stands still while a task
/// keeps its CPU. Lines that cannot be read are left out.
#[must_use]
pub fn cpu_waits(schedstat: &str) -> BTreeMap<HostCpu, u64> {
    let cpu = |line: &str| {
        let (name, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        Some((HostCpu(name.parse().ok()?), rest.split_ascii_whitespace().nth(7)?.parse().ok()?))
    };
    schedstat.lines().filter_map(cpu).collect()
}

/// Counters at the start of a window, and averages from before.
#[derive(Debug, Default)]
pub struct Window {
    start: Nanos,
    tasks: Vec<Option<TaskTimes>>,
    cpus: BTreeMap<HostCpu, CpuTimes>,
    waits: BTreeMap<HostCpu, u64>,
    averages: BTreeMap<HostCpu, u32>,
}

/// The counters of one moment.
#[derive(Debug, Default)]
pub struct Counters {
    /// Of each vCPU thread; `None` for one that has ended or cannot be read.
    pub tasks: Vec<Option<TaskTimes>>,
    /// Of each CPU.
    pub cpus: BTreeMap<HostCpu, CpuTimes>,
    /// For how long tasks have waited on each CPU, in ns; empty where the kernel does not tell.
    pub waits: BTreeMap<HostCpu, u64>,
    /// Runnable tasks of others on each CPU now; without those that are not known.
    pub others: BTreeMap<HostCpu, u32>,
}

/// Loads over a window, as [`policy::placement::Snapshot`] takes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// vCPUs by index.
    pub vcpus: Vec<VcpuLoad>,
    /// CPUs in the order of the host.
    pub cpus: Vec<CpuLoad>,
}

impl Window {
    /// A window that opens now.
    #[must_use]
    pub fn open(now: Nanos, counters: Counters) -> Self {
        let Counters { tasks, cpus, waits, .. } = counters;
        Self { start: now, tasks, cpus, waits, averages: BTreeMap::new() }
    }

    /// Ends the window, opens the next, and gives the loads in between.
    pub fn close(
        &mut self,
        now: Nanos,
        counters: Counters,
        host: &HostTopology,
        (places, claims): (&[HostCpu], &[Claim]),
    ) -> Loads {
        let passed_ns = now.since(self.start).max(1);
        let vcpu = |(index, cpu): (usize, &HostCpu)| {
            let at = |tasks: &[Option<TaskTimes>]| tasks.get(index).copied().flatten();
            let (before, after) = (at(&self.tasks), at(&counters.tasks));
            let part = |of: fn(TaskTimes) -> u64| {
                let spent = after.zip(before).map_or(0, |(after, before)| of(after).saturating_sub(of(before)));
                share(spent, passed_ns)
            };
            VcpuLoad { cpu: *cpu, running: part(|times| times.run_ns), waiting: part(|times| times.wait_ns) }
        };
        let vcpus: Vec<VcpuLoad> = places.iter().enumerate().map(vcpu).collect();
        let mut cpus: Vec<CpuLoad> =
            host.cpus().iter().map(|cpu| self.cpu(cpu.id, &counters, passed_ns, claims)).collect();
        for (cpu, load) in host.cpus().iter().zip(&mut cpus) {
            let mean = self.waited(cpu.id, &counters, passed_ns).map(|waited| load.utilisation.saturating_add(waited));
            load.runqueue = Runqueue { now: counters.others.get(&cpu.id).copied(), mean };
        }
        for vcpu in &vcpus {
            if let Some(mean) = host.index_of(vcpu.cpu).and_then(|cpu| cpus[cpu].runqueue.mean.as_mut()) {
                *mean = mean.saturating_sub(vcpu.running.saturating_add(vcpu.waiting));
            }
        }
        (self.start, self.tasks, self.cpus, self.waits) = (now, counters.tasks, counters.cpus, counters.waits);
        Loads { vcpus, cpus }
    }

    /// How many tasks waited on a CPU on average, in 1024ths of a task.
    fn waited(&self, cpu: HostCpu, after: &Counters, passed_ns: u64) -> Option<u32> {
        let (before, after) = self.waits.get(&cpu).zip(after.waits.get(&cpu))?;
        let tasks = u128::from(after.saturating_sub(*before)) * u128::from(FULL) / u128::from(passed_ns);
        Some(u32::try_from(tasks).unwrap_or(u32::MAX))
    }

    fn cpu(&mut self, cpu: HostCpu, after: &Counters, passed_ns: u64, claims: &[Claim]) -> CpuLoad {
        let (before, after) = (self.cpus.get(&cpu), after.cpus.get(&cpu));
        let spent = after
            .zip(before)
            .map(|(after, before)| (after.busy.saturating_sub(before.busy), after.all.saturating_sub(before.all)));
        let utilisation = spent.map_or(0, |(busy, all)| share(busy, all.max(1)));
        let average = self.averages.entry(cpu).or_insert(utilisation);
        let weight = share(passed_ns, AVERAGE_NS);
        *average = (*average * (FULL - weight) + utilisation * weight) / FULL;
        let on_it = claims.iter().filter(|claim| claim.cpus.contains(cpu));
        CpuLoad {
            utilisation,
            average: *average,
            claims: u32::try_from(on_it.clone().count()).unwrap_or(u32::MAX),
            exclusive: on_it.clone().any(|claim| claim.exclusive),
            mean_idle_ns: u64::MAX,
            ..CpuLoad::default()
        }
    }
}

/// A part in 1024ths, at most all.
fn share(part: u64, whole: u64) -> u32 {
    let share = u128::from(part) * u128::from(FULL) / u128::from(whole.max(1));
    u32::try_from(share).unwrap_or(FULL).min(FULL)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use topology::host::HostShape;

    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 0\ncpu1 0 0 0 100\nintr 5\ncpu7 1 1 1 1\n";

    fn host() -> HostTopology {
        HostShape { nodes: 1, llcs: 1, clusters: 1, cores: 2, threads: 1, node_memory_bytes: 1 << 30 }.build().unwrap()
    }

    #[test]
    fn idle_and_waiting_for_io_are_not_busy() {
        let times = cpu_times(STAT);
        assert_eq!(times.get(&HostCpu(0)), Some(&CpuTimes { busy: 20, all: 100 }));
        assert_eq!(times.get(&HostCpu(1)), Some(&CpuTimes { busy: 0, all: 100 }));
        assert_eq!(times.len(), 2, "what follows the CPUs is not read");
    }

    #[test]
    fn a_window_has_the_time_between_its_ends() {
        let task = |run_ns, wait_ns| Some(TaskTimes { run_ns, wait_ns });
        let counters = |task, busy, all| Counters {
            tasks: vec![task],
            cpus: BTreeMap::from([(HostCpu(0), CpuTimes { busy, all })]),
            ..Counters::default()
        };
        let mut window = Window::open(Nanos(0), counters(task(5, 5), 0, 0));
        let claims = [Claim { cpus: "1".parse().unwrap(), exclusive: true }];
        let loads = window.close(Nanos(1_000), counters(task(505, 255), 3, 4), &host(), (&[HostCpu(0)], &claims));
        assert_eq!(loads.vcpus, [VcpuLoad { cpu: HostCpu(0), running: 512, waiting: 256 }]);
        assert_eq!((loads.cpus[0].utilisation, loads.cpus[0].claims), (768, 0));
        assert_eq!((loads.cpus[1].utilisation, loads.cpus[1].claims, loads.cpus[1].exclusive), (0, 1, true));
    }

    #[test]
    fn a_runqueue_without_our_own_vcpus() {
        const SCHEDSTAT: &str = "version 15\ntimestamp 4\ncpu0 0 0 1 2 3 4 500 700 9\ndomain0 03 0 0\ncpu1 0 0 0\n\
            cpu 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(cpu_waits(SCHEDSTAT), BTreeMap::from([(HostCpu(0), 700)]));
        let counters = |task: (u64, u64), busy, all, waits: &[(u32, u64)]| Counters {
            tasks: vec![Some(TaskTimes { run_ns: task.0, wait_ns: task.1 })],
            cpus: (0..2).map(|cpu| (HostCpu(cpu), CpuTimes { busy, all })).collect(),
            waits: waits.iter().map(|&(cpu, ns)| (HostCpu(cpu), ns)).collect(),
            others: BTreeMap::from([(HostCpu(1), 2)]),
        };
        let mut window = Window::open(Nanos(0), counters((0, 0), 0, 0, &[(0, 100)]));
        // All the time busy; our vCPU had half of it and waited for the other half, another task waited three times as long.
        let after = counters((500, 500), 9, 9, &[(0, 2_100), (1, 4)]);
        let loads = window.close(Nanos(1_000), after, &host(), (&[HostCpu(0)], &[]));
        assert_eq!(loads.cpus[0].runqueue, Runqueue { now: None, mean: Some(2 * FULL) });
        assert_eq!(loads.cpus[1].runqueue, Runqueue { now: Some(2), mean: None }, "known now, but not before");
    }

    #[test]
    fn a_thread_that_has_ended_is_no_load() {
        let mut window =
            Window::open(Nanos(0), Counters { tasks: vec![TaskTimes::read("7 7 1")], ..Counters::default() });
        let loads = window.close(Nanos(9), Counters::default(), &host(), (&[HostCpu(0)], &[]));
        assert_eq!((loads.vcpus[0].running, loads.vcpus[0].waiting), (0, 0));
        assert_eq!(TaskTimes::read(""), None);
    }

    proptest! {
        #[test]
        fn any_text_is_borne_and_no_share_exceeds_a_cpu(text in "(cpu[0-9]{0,5} [0-9 ]{0,60}\n){0,4}", ns in any::<u64>()) {
            let counters = || Counters {
                tasks: vec![TaskTimes::read(&text)],
                cpus: cpu_times(&text),
                waits: cpu_waits(&text),
                ..Counters::default()
            };
            let mut window = Window::open(Nanos(ns), counters());
            let loads = window.close(Nanos(0), counters(), &host(), (&[HostCpu(0)], &[]));
            prop_assert!(loads.cpus.iter().all(|cpu| cpu.utilisation <= FULL && cpu.average <= FULL));
        }
    }
}
