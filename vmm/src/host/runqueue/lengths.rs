// SPDX-License-Identifier: Apache-2.0
//! How many tasks of others are on the runqueue of each CPU at this moment.
//!
//! The exact view tells the length of the runqueue that a thread is on. The kernel has a thread for every CPU that never
//! leaves it (`cpuhp/N`, kernel/cpu.c), so whoever asks about those learns of all CPUs. They are found in `/proc`; in a pid
//! namespace without them, only the CPUs of our own threads are known.

use std::collections::BTreeMap;
use std::io;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::{Exact, ThreadSeen};
use crate::host::sysfs;

/// Number of `kthreadd`, the parent of every thread of the kernel.
const KTHREADD: &str = "2";
/// What the threads that are bound to one CPU are called, before the CPU's number.
const BOUND: &str = "cpuhp/";

/// A thread of the kernel on every CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundThreads(Vec<i32>);

impl BoundThreads {
    /// Looks for those of these CPUs.
    #[must_use]
    pub fn find(cpus: &CpuSet<HostCpu>) -> Self {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Self::default() };
        let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<i32>().ok();
        let mut tids: Vec<i32> = entries.filter_map(number).collect();
        // The kernel's own are the oldest.
        tids.sort_unstable();
        let cpu = |tid: &i32| bound_to(&sysfs::read_small(&format!("/proc/{tid}/stat")).ok()?);
        let bound = tids.iter().filter(|tid| cpu(tid).is_some_and(|cpu| cpus.contains(cpu)));
        Self(bound.copied().take(cpus.len()).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The CPU that a thread of the kernel is bound to, from its `/proc/PID/stat` (proc_pid_stat(5)).
fn bound_to(stat: &str) -> Option<HostCpu> {
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once(" (")?.1;
    let parent = after.split_ascii_whitespace().nth(1)?;
    name.strip_prefix(BOUND).filter(|_| parent == KTHREADD)?.parse().ok().map(HostCpu)
}

/// Tasks that are runnable now and are none of `own`, for each CPU that is known.
///
/// # Errors
/// As of [`Exact::look`].
pub fn others(exact: &Exact, bound: &BoundThreads, own: &[i32]) -> io::Result<BTreeMap<HostCpu, u32>> {
    let threads: Vec<i32> = own.iter().chain(&bound.0).copied().collect();
    let mut seen = Vec::with_capacity(threads.len());
    exact.look(&threads, &mut seen)?;
    let (own, bound) = seen.split_at(own.len().min(seen.len()));
    Ok(lengths(own, bound))
}

/// Lengths of the runqueues on which threads were seen, less the runnable ones of `own`.
fn lengths(own: &[ThreadSeen], others: &[ThreadSeen]) -> BTreeMap<HostCpu, u32> {
    let mut lengths: BTreeMap<HostCpu, u32> =
        own.iter().chain(others).filter_map(|seen| seen.cpu.zip(seen.runqueue)).collect();
    for cpu in own.iter().filter(|seen| seen.runnable == Some(true)).filter_map(|seen| seen.cpu) {
        // The looks are not all of one moment.
        lengths.entry(cpu).and_modify(|tasks| *tasks = tasks.saturating_sub(1));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::host::affinity;
    use crate::vcpu::thread::own_tid;

    #[test]
    fn a_thread_of_the_kernel_is_known_by_its_name_and_parent() {
        let stat = |name: &str, parent: u32| format!("20 ({name}) S {parent} 0 0 0 -1 69238848 0");
        assert_eq!(bound_to(&stat("cpuhp/12", 2)), Some(HostCpu(12)));
        for other in [stat("cpuhp/12", 1), stat("cpuhp/", 2), stat("kworker/1:0", 2), stat("a) (cpuhp/1", 2)] {
            assert_eq!(bound_to(&other), None, "{other}");
        }
        assert_eq!(bound_to(""), None);
    }

    #[test]
    fn our_own_runnable_threads_do_not_count() {
        let seen = |cpu, runqueue, runnable| ThreadSeen {
            runqueue: Some(runqueue),
            on_cpu: None,
            runnable: Some(runnable),
            cpu: Some(HostCpu(cpu)),
        };
        let own = [seen(0, 3, true), seen(0, 3, false), seen(1, 1, true), seen(2, 0, true), ThreadSeen::default()];
        let counted = lengths(&own, &[seen(3, 2, false)]);
        assert_eq!(
            counted.into_iter().collect::<Vec<_>>(),
            [0, 1, 2, 3].map(HostCpu).into_iter().zip([2, 0, 0, 2]).collect::<Vec<_>>()
        );
    }

    /// Where the exact view is to be had, a busy thread is seen on its CPU, and is gone when it is one of our own.
    #[test]
    fn a_busy_task_is_on_the_runqueue_of_its_cpu() {
        let Ok(exact) = Exact::open() else { return };
        let usable = affinity::of_this_thread().unwrap();
        let bound = BoundThreads::find(&usable);
        let cpu = usable.iter().last().unwrap();
        let (stop, tid) = (AtomicBool::new(false), std::sync::mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                affinity::pin_this_thread([cpu]).unwrap();
                tid.0.send(own_tid()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let busy = tid.1.recv().unwrap();
            // A thread that was stopped by a hypervisor below is runnable all the same; one that has not got that far is not.
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut all = others(&exact, &bound, &[own_tid()]).unwrap();
            while all.get(&cpu).is_none_or(|tasks| *tasks == 0) && Instant::now() < deadline {
                all = others(&exact, &bound, &[own_tid()]).unwrap();
            }
            let known = bound.count() > 0;
            assert!(!known || all[&cpu] > 0, "{all:?}");
            let without = others(&exact, &bound, &[own_tid(), busy]).unwrap();
            assert!(without.contains_key(&cpu), "{without:?}");
            stop.store(true, Ordering::Relaxed);
        });
        if bound.count() > 0 {
            assert_eq!(bound.count(), usable.len());
        }
    }
}
