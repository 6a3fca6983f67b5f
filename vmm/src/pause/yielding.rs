// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "sched_yield, getrusage, sched_getcpu and affinity have no safe wrapper")]
//! `sched_yield`: done, its effect measured, and probed (`trial` says when).
//!
//! What a yield does changed three times between Linux 6.5 and 6.19, and stable kernels took the changes at different
//! times (docs/pause-loops.md): so nobody reads version numbers here, two threads try it.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use topology::id::HostCpu;

use super::clock;
use crate::host::affinity;

/// Gives up the CPU once.
pub fn sched_yield() {
    // SAFETY: no arguments; Linux's never fails (sched_yield(2)).
    unsafe { libc::sched_yield() };
}

/// How often the calling thread was switched away from so far, blocked or not.
#[must_use]
pub fn switches() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one rusage, whose every pattern is valid; zeroes stand if it should fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nvcsw).unwrap_or(0) + u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}

/// The CPU the calling thread is on.
#[must_use]
pub fn current_cpu() -> Option<HostCpu> {
    // SAFETY: no arguments; a negative value is an error.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok().map(HostCpu)
}

/// What the probe found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct YieldProbe {
    /// Yields made while another thread wanted the same CPU.
    pub yields: u32,
    /// Of these, how many let another thread run.
    pub switched: u32,
}

impl YieldProbe {
    /// Fewer yields say nothing.
    const ENOUGH: u32 = 16;

    /// Whether yielding is worth anything: half of the yields let somebody run. A probe that came to no result does not
    /// condemn it, for the policy measures too.
    #[must_use]
    pub const fn is_useful(&self) -> bool {
        self.yields < Self::ENOUGH || self.switched * 2 >= self.yields
    }
}

/// Two threads on one CPU: one works and yields now and then, as a spinning guest does; the other yields and sees
/// whether it comes straight back. Bounded in time; both threads are gone afterwards.
///
/// # Errors
/// No thread can be started.
pub fn probe() -> io::Result<YieldProbe> {
    let Some(cpu) = current_cpu() else { return Ok(YieldProbe::default()) };
    let (stop, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    thread::scope(|scope| {
        named("yield-worker").spawn_scoped(scope, || work(cpu, &stop, &begun))?;
        let counting = named("yield-counter").spawn_scoped(scope, || count_switches(cpu, &begun));
        let found = counting.map(|thread| thread.join().unwrap_or_default());
        stop.store(true, Ordering::Relaxed);
        found
    })
}

fn work(cpu: HostCpu, stop: &AtomicBool, begun: &AtomicU32) {
    const WORK_NS: u64 = 10_000;
    if affinity::pin_this_thread([cpu]).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        begun.fetch_add(1, Ordering::Relaxed);
        let start = clock::now();
        while clock::now().since(start) < WORK_NS {
            std::hint::spin_loop();
        }
        sched_yield();
    }
}

fn count_switches(cpu: HostCpu, begun: &AtomicU32) -> YieldProbe {
    const MOST_YIELDS: u32 = 64;
    const BOUND_NS: u64 = 3_000_000;
    let mut found = YieldProbe::default();
    if affinity::pin_this_thread([cpu]).is_err() {
        return found;
    }
    let start = clock::now();
    while found.yields < MOST_YIELDS && clock::now().since(start) < BOUND_NS {
        let (before, at) = (switches(), begun.load(Ordering::Relaxed));
        sched_yield();
        if at > 0 {
            found.yields += 1;
            found.switched += u32::from(switches() > before);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_without_result_does_not_condemn() {
        assert!(YieldProbe::default().is_useful());
        assert!(YieldProbe { yields: 64, switched: 60 }.is_useful());
        assert!(!YieldProbe { yields: 64, switched: 3 }.is_useful());
    }
}
