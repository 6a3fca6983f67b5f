// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "the thread's CPU clock and the length of a clock tick")]
//! What the kernel has charged to the calling thread so far.

use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;

use topology::id::HostCpu;

use crate::host::runqueue::proc_text;

/// What a thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It is not runnable.
    Sleeps,
    /// It is on a CPU.
    Runs,
    /// It is runnable and on no CPU.
    Waits,
}

/// What a thread is doing, as `/proc` and its CPU clock say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Whether it runs.
    pub activity: Activity,
    /// The CPU it is on or was on last.
    pub last_cpu: HostCpu,
}

/// Times of a thread since it was started, in nanoseconds. What cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// On a CPU (`CLOCK_THREAD_CPUTIME_ID`), up to this moment.
    pub cpu_ns: u64,
    /// Runnable without one (`run_delay`).
    pub waited_ns: u64,
    /// In guest code, sampled at the scheduler tick and counted in hundredths of a second.
    pub guest_ns: u64,
}

impl ThreadTimes {
    /// The calling thread's. Takes tens of microseconds: two files of `/proc/thread-self` are read.
    #[must_use]
    pub fn now() -> Self {
        let mut text = [0; 1024];
        let stat = read("/proc/thread-self/stat", &mut text).and_then(proc_text::stat);
        let guest_ns = stat.map_or(0, |stat| stat.guest_ticks.saturating_mul(tick_ns()));
        let waited = read("/proc/thread-self/schedstat", &mut text).and_then(proc_text::schedstat);
        // Last: what the reading took is in it.
        let cpu_ns = cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        Self { waited_ns: waited.map_or(0, |stat| stat.waited_ns), guest_ns, cpu_ns }
    }

    /// Another thread's of this process, and what it is doing. It is not stopped for that. `None` if there is no such
    /// thread.
    #[must_use]
    pub fn of(tid: i32) -> Option<(Self, Doing)> {
        let mut text = [0; 1024];
        let clock = thread_clock(tid);
        let cpu_before_ns = cpu_ns(clock);
        let stat = read(&format!("/proc/self/task/{tid}/stat"), &mut text).and_then(proc_text::stat)?;
        let waited = read(&format!("/proc/self/task/{tid}/schedstat"), &mut text).and_then(proc_text::schedstat);
        let times = Self {
            waited_ns: waited.map_or(0, |stat| stat.waited_ns),
            guest_ns: stat.guest_ticks.saturating_mul(tick_ns()),
            cpu_ns: cpu_ns(clock),
        };
        // `/proc` does not tell which of the runnable threads have a CPU, but the kernel brings the clock of one that does up
        // to the moment (kernel/sched/core.c, `task_sched_runtime`), and that of one that waits stands still.
        let activity = match (stat.state, times.cpu_ns > cpu_before_ns) {
            (b'R', true) => Activity::Runs,
            (b'R', false) => Activity::Waits,
            _ => Activity::Sleeps,
        };
        Some((times, Doing { activity, last_cpu: HostCpu(stat.cpu) }))
    }

    /// What has come since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            guest_ns: self.guest_ns.saturating_sub(earlier.guest_ns),
        }
    }
}

fn read<'a>(path: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = File::open(path).ok()?.read(text).ok()?;
    text.get(..length)
}

/// CPU time of this process so far, its ended threads included, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The clock of a thread's CPU time (include/linux/posix-timers_types.h, `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`).
const fn thread_clock(tid: i32) -> libc::clockid_t {
    (!tid << 3) | 4 | 2
}

fn cpu_ns(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes the struct it is given, and says so by its result.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return 0;
    }
    // SAFETY: written by the call that succeeded.
    let time = unsafe { time.assume_init() };
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

/// Length of the clock ticks that `/proc` counts in: 10 ms everywhere Linux runs on x86.
fn tick_ns() -> u64 {
    // SAFETY: sysconf has no memory effects.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(per_second).ok().filter(|rate| *rate > 0).map_or(10_000_000, |rate| 1_000_000_000 / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_looks_at_itself_runs() {
        // SAFETY: the call has no arguments and no effect on memory.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) };
        let (_, doing) = ThreadTimes::of(i32::try_from(tid).unwrap()).unwrap();
        assert_eq!(doing.activity, Activity::Runs);
    }

    #[test]
    fn the_main_thread_is_seen_from_outside() {
        let tid = i32::try_from(std::process::id()).unwrap();
        let (main, _) = ThreadTimes::of(tid).expect("the main thread is there");
        assert!(main.cpu_ns > 0);
        assert!(ThreadTimes::of(i32::MAX).is_none());
    }
}
