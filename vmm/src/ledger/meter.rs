// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "RDTSC")]
//! The clock around `KVM_RUN`: two reads of the time-stamp counter an exit.
//!
//! Ticks are turned into nanoseconds by the run's own wall time, so the counter's frequency need not be known; it has to be
//! constant, as it is on every processor of the last fifteen years (CPUID.80000007H:EDX[8], invariant TSC). One writer, the
//! vCPU's thread; readers at any time, and none of them holds the writer up: where a stretch began is behind a sequence
//! number, and a reader that met a change reads again.

use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use super::Measured;
use super::thread_times::ThreadTimes;

/// A stretch outside `KVM_RUN` longer than this is taken for one in which the thread was off CPU: no exit of a working
/// machine takes so long, and a thread that lost its CPU does not get it back sooner (the scheduler's shortest slice is
/// 0.7 ms, `base_slice_ns`).
pub const LONG_NS: u64 = 500_000;
/// The same in ticks, of a counter of 2.5 GHz: what it is compared with need not be exact.
const LONG_TICKS: u64 = LONG_NS * 5 / 2;

/// What a vCPU thread has measured of itself.
#[derive(Debug, Default)]
pub struct Meter {
    wall_ns: AtomicU64,
    wall_ticks: AtomicU64,
    cpu_ns: AtomicU64,
    waited_ns: AtomicU64,
    guest_ns: AtomicU64,
    outside_ticks: AtomicU64,
    outside_long_ticks: AtomicU64,
    sipi_ticks: AtomicU64,
    begun: Begun,
}

/// Where the stretch that is under way began; as of the thread's and the process' clocks.
#[derive(Debug, Default)]
struct Begun {
    /// Odd while the writer changes what is below or adds a stretch up.
    sequence: AtomicU64,
    /// [`clock_ns`]; 0 between stretches.
    at_ns: AtomicU64,
    at_ticks: AtomicU64,
    cpu_ns: AtomicU64,
    waited_ns: AtomicU64,
    guest_ns: AtomicU64,
}

impl Begun {
    /// Lets the writer change several numbers that belong together.
    fn change(&self, change: impl FnOnce(&Self)) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        change(self);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }
}

/// Times a reader begins again before it takes numbers that may not belong together.
const READS: u32 = 8;

/// A stretch in the run loop, from entering it to leaving it.
#[derive(Debug)]
pub struct Stretch<'a> {
    meter: &'a Meter,
    started: Instant,
    started_ticks: u64,
    before: ThreadTimes,
    left_ticks: u64,
    entered_ticks: u64,
    /// The thread has let go of its CPU since it left `KVM_RUN`.
    let_go: bool,
}

impl Meter {
    /// The calling thread enters the run loop.
    #[must_use]
    pub fn start(&self) -> Stretch<'_> {
        let before = ThreadTimes::now();
        let now = ticks();
        let started = Instant::now();
        self.begun.change(|begun| {
            for (number, value) in [
                (&begun.at_ns, clock_ns(started)),
                (&begun.at_ticks, now),
                (&begun.cpu_ns, before.cpu_ns),
                (&begun.waited_ns, before.waited_ns),
                (&begun.guest_ns, before.guest_ns),
            ] {
                number.store(value, Ordering::Relaxed);
            }
        });
        Stretch { meter: self, started, started_ticks: now, before, left_ticks: now, entered_ticks: now, let_go: false }
    }

    /// What was measured up to now, the stretch that is under way included; `times` gives what the kernel has charged to
    /// the metered thread. Any thread may ask.
    #[must_use]
    pub fn measured_now(&self, mut times: impl FnMut() -> ThreadTimes) -> Measured {
        for _ in 1..READS {
            let before = self.begun.sequence.load(Ordering::Acquire);
            let measured = self.measured_with(&times());
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.begun.sequence.load(Ordering::Relaxed) == before {
                return measured;
            }
        }
        self.measured_with(&times())
    }

    fn measured_with(&self, times: &ThreadTimes) -> Measured {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let begun = &self.begun;
        let at_ns = get(&begun.at_ns);
        if at_ns == 0 {
            return self.measured();
        }
        let before = ThreadTimes {
            cpu_ns: get(&begun.cpu_ns),
            waited_ns: get(&begun.waited_ns),
            guest_ns: get(&begun.guest_ns),
        };
        let since = times.since(&before);
        self.measured_over(
            clock_ns(Instant::now()).saturating_sub(at_ns),
            ticks().saturating_sub(get(&begun.at_ticks)),
            &since,
        )
    }

    /// What was measured in the stretches that have ended; without what KVM itself counts.
    #[must_use]
    pub fn measured(&self) -> Measured {
        self.measured_over(0, 0, &ThreadTimes::default())
    }

    /// With a stretch of this length that is not added up yet.
    fn measured_over(&self, more_ns: u64, more_ticks: u64, more: &ThreadTimes) -> Measured {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (wall_ns, wall_ticks) = (get(&self.wall_ns) + more_ns, get(&self.wall_ticks) + more_ticks);
        let ns = |counter: &AtomicU64| to_ns(get(counter), wall_ns, wall_ticks);
        Measured {
            wall_ns,
            cpu_ns: get(&self.cpu_ns) + more.cpu_ns,
            waited_ns: get(&self.waited_ns) + more.waited_ns,
            guest_ns: get(&self.guest_ns) + more.guest_ns,
            halt_wait_ns: None,
            polled_ns: None,
            sipi_ns: ns(&self.sipi_ticks),
            outside_ns: ns(&self.outside_ticks),
            outside_long_ns: ns(&self.outside_long_ticks),
        }
    }
}

impl Stretch<'_> {
    /// Right before `KVM_RUN`.
    #[inline]
    pub fn entering(&mut self) {
        self.entered_ticks = ticks();
        let outside = self.entered_ticks.saturating_sub(self.left_ticks);
        add(&self.meter.outside_ticks, outside);
        if outside > LONG_TICKS || std::mem::take(&mut self.let_go) {
            add(&self.meter.outside_long_ticks, outside);
        }
    }

    /// The thread has yielded, parked or slept since it left `KVM_RUN`: it may have been off CPU for less than
    /// [`LONG_NS`].
    pub const fn let_go_of_cpu(&mut self) {
        self.let_go = true;
    }

    /// Right after it.
    #[inline]
    pub fn left(&mut self) {
        self.left_ticks = ticks();
    }

    /// The call that was just left has only waited for INIT and SIPI.
    pub fn waited_for_sipi(&self) {
        add(&self.meter.sipi_ticks, self.left_ticks.saturating_sub(self.entered_ticks));
    }
}

impl Drop for Stretch<'_> {
    fn drop(&mut self) {
        let now = ticks();
        add(&self.meter.outside_ticks, now.saturating_sub(self.left_ticks));
        let times = ThreadTimes::now().since(&self.before);
        let wall = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.meter.begun.change(|begun| {
            for (counter, by) in [
                (&self.meter.wall_ns, wall),
                (&self.meter.wall_ticks, ticks().saturating_sub(self.started_ticks)),
                (&self.meter.cpu_ns, times.cpu_ns),
                (&self.meter.waited_ns, times.waited_ns),
                (&self.meter.guest_ns, times.guest_ns),
            ] {
                add(counter, by);
            }
            begun.at_ns.store(0, Ordering::Relaxed);
        });
    }
}

/// By the one writer, so a load and a store are enough.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and Linux leaves it allowed (prctl PR_SET_TSC).
    unsafe { _rdtsc() }
}

/// Time since the process first asked, in nanoseconds, never 0.
fn clock_ns(now: Instant) -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let since = now.saturating_duration_since(*FIRST.get_or_init(|| now));
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}

/// Ticks as their share of wall time.
fn to_ns(ticks: u64, wall_ns: u64, wall_ticks: u64) -> u64 {
    let ns = u128::from(ticks) * u128::from(wall_ns) / u128::from(wall_ticks.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_a_share_of_wall_time() {
        assert_eq!(to_ns(50, 1_000, 200), 250);
        assert_eq!(to_ns(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(to_ns(5, 0, 0), 0);
    }

    #[test]
    fn a_stretch_is_seen_while_it_lasts_and_counted_once() {
        let meter = Meter::default();
        let times = ThreadTimes::now;
        assert_eq!(meter.measured_now(times), Measured::default());
        let stretch = meter.start();
        let wait = Instant::now();
        while wait.elapsed().as_micros() < 100 {}
        let during = meter.measured_now(times);
        assert!(during.wall_ns >= 100_000, "{during:?}");
        drop(stretch);
        let after = meter.measured();
        assert!(after.wall_ns >= during.wall_ns && after.cpu_ns >= during.cpu_ns, "{during:?} {after:?}");
        assert_eq!(meter.measured_now(times), after);
    }

    #[test]
    fn a_stretch_is_counted_when_it_ends() {
        let meter = Meter::default();
        let mut stretch = meter.start();
        stretch.entering();
        stretch.left();
        stretch.waited_for_sipi();
        assert_eq!(meter.measured().wall_ns, 0);
        drop(stretch);
        let measured = meter.measured();
        assert!(measured.wall_ns > 0 && measured.outside_ns <= measured.wall_ns, "{measured:?}");
    }
}
