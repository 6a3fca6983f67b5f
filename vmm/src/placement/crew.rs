// SPDX-License-Identifier: Apache-2.0
//! The vCPU threads of a machine, and how each of them and all others are put on CPUs.
//!
//! A thread tells its number with its first instruction, and a busy host may let that wait, for instance behind another vCPU
//! on its CPU. It can be put on CPUs before, but it is not to be told from threads that are no vCPUs. Invariant: whether a
//! thread has told its number makes no difference to who asks here.

use std::io;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

use super::loads::TaskTimes;
use crate::host::{affinity, sysfs, tasks};
use crate::vcpu::thread::{ThreadId, VcpuHandle};

/// The vCPU threads, by index.
#[derive(Clone, Debug)]
pub(super) struct Crew(Vec<ThreadId>);

impl Crew {
    pub(super) fn of(threads: &[VcpuHandle]) -> Self {
        Self(threads.iter().map(VcpuHandle::thread_id).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The threads, for those who must wait for a number.
    pub(super) fn ids(&self) -> &[ThreadId] {
        &self.0
    }

    /// The numbers that are known.
    pub(super) fn tids(&self) -> impl Iterator<Item = i32> + '_ {
        self.0.iter().filter_map(ThreadId::get)
    }

    /// Lets a thread run on these CPUs only.
    ///
    /// # Errors
    /// The kernel's own: `EINVAL` if none of them is online and allowed, `ESRCH` if the thread has ended.
    pub(super) fn put(&self, index: usize, cpus: &CpuSet<HostCpu>) -> io::Result<()> {
        let thread = self.0.get(index).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        thread.confine(cpus)
    }

    /// Whether the kernel, or somebody else, lets a thread run elsewhere than on its CPUs of `own`.
    pub(super) fn strayed(&self, own: &[CpuSet<HostCpu>]) -> bool {
        let elsewhere = |(thread, cpus): (&ThreadId, &CpuSet<HostCpu>)| {
            thread.get().and_then(|tid| affinity::of(tid).ok()).is_some_and(|now| now != *cpus)
        };
        self.0.iter().zip(own).any(elsewhere)
    }

    /// Puts all other threads of the process on these CPUs; `own` are those of each of the crew. The one that places must see
    /// what the process may use, and takes no time; those that try out what a yield does have CPUs of their own choice for a
    /// moment.
    pub(super) fn keep_others_on(&self, cpus: &CpuSet<HostCpu>, own: &[CpuSet<HostCpu>]) {
        let unknown: Vec<bool> = self.0.iter().map(|thread| thread.get().is_none()).collect();
        let vcpus: Vec<i32> = self.tids().collect();
        let stays = |name: &str| name == "placement" || name.starts_with("yield-");
        for task in tasks::of_this_process() {
            if !vcpus.contains(&task.tid) && !stays(&task.name) {
                // A thread may have ended meanwhile.
                let _ = affinity::set(task.tid, cpus.iter());
            }
        }
        // Those that had no number yet went with the others.
        for ((index, cpus), _) in own.iter().enumerate().zip(unknown).filter(|(_, unknown)| *unknown) {
            let _ = self.put(index, cpus);
        }
    }

    /// What each thread has had; `None` for one that has not run, has ended or cannot be read.
    pub(super) fn times(&self) -> Vec<Option<TaskTimes>> {
        let one = |thread: &ThreadId| {
            let text = sysfs::read_small(&format!("/proc/self/task/{}/schedstat", thread.get()?)).ok()?;
            TaskTimes::read(&text)
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::vcpu::thread::own_tid;

    /// As a vCPU's thread behind another one on its CPU: it is there, and has not got so far that its number is known.
    #[test]
    fn a_thread_is_on_its_cpus_before_and_after_it_tells_its_number() {
        let usable = affinity::of_this_thread().unwrap();
        let alone = |cpu: Option<HostCpu>| cpu.into_iter().collect::<CpuSet<HostCpu>>();
        let (first, last) = (alone(usable.lowest()), alone(usable.iter().last()));
        let (id, (told, tid), (go_on, go)) = (ThreadId::default(), channel(), channel::<()>());
        let mine = id.clone();
        let thread = thread::spawn(move || {
            told.send(own_tid()).unwrap();
            go.recv().unwrap();
            mine.tell();
            told.send(own_tid()).unwrap();
            // Until it is let go.
            let _ = go.recv();
        });
        id.born(&thread);
        let (crew, number) = (Crew(vec![id.clone()]), tid.recv().unwrap());
        crew.put(0, &last).unwrap();
        assert_eq!(affinity::of(number).unwrap(), last);
        assert!(crew.tids().next().is_none() && crew.times() == [None], "it has told nothing");
        go_on.send(()).unwrap();
        tid.recv().unwrap();
        assert_eq!(crew.tids().collect::<Vec<_>>(), [number]);
        crew.put(0, &first).unwrap();
        assert_eq!(affinity::of(number).unwrap(), first);
        assert_eq!(
            (crew.strayed(std::slice::from_ref(&first)), crew.strayed(std::slice::from_ref(&last))),
            (false, first != last)
        );
        drop(go_on);
        id.gone();
        thread.join().unwrap();
        assert!(crew.put(0, &last).is_err(), "it has ended");
        assert!(crew.put(1, &last).is_err(), "there is no other");
    }
}
