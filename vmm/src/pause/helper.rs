// SPDX-License-Identifier: Apache-2.0
//! The threads beside the vCPUs': one that lays holds on them, one that looks for vCPUs that never exit, and for a moment
//! one that tries what a yield does.
//!
//! Invariant: the first two sleep between their turns, and end when the machine does.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock;
use super::driver::Driver;
use super::inject::Schedule;
use crate::vcpu::kick;

/// A helper thread; ends when this is dropped.
#[derive(Debug)]
pub struct Helper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn spawn(name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&of_thread))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Lays holds of `hold_ns` on the vCPUs by `schedule`, counted from now.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn injector(driver: Arc<Driver>, schedule: Schedule, hold_ns: u64) -> io::Result<Self> {
        Self::spawn("injector", move |stop| {
            let start = Instant::now();
            for hold in schedule {
                if !sleep_until(start + Duration::from_nanos(hold.at_ns), stop) {
                    return;
                }
                let seat = driver.seat(hold.vcpu);
                seat.hold_until_ns.store(clock::now().after(hold_ns).0, Ordering::Relaxed);
                kick::kick(seat.tid.load(Ordering::Acquire), kick::signal());
            }
        })
    }

    /// Has every vCPU that ran for a whole window without an exit look at what it executes.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn sampler(driver: Arc<Driver>, window_ns: u64) -> io::Result<Self> {
        Self::spawn("sampler", move |stop| {
            let window = Duration::from_nanos(window_ns);
            let mut entries: Vec<u64> = vec![u64::MAX; driver.seats().len()];
            while sleep_until(Instant::now() + window, stop) {
                for (seat, before) in driver.seats().iter().zip(&mut entries) {
                    let now = seat.entries.get();
                    if now == *before && !driver.sleeps(seat) {
                        seat.look_due.store(true, Ordering::Relaxed);
                        kick::kick(seat.tid.load(Ordering::Acquire), kick::signal());
                    }
                    *before = now;
                }
            }
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic aborts the process, so a join cannot fail.
            let _ = thread.join();
        }
    }
}

/// Probes `sched_yield`, if that is due, on threads that end by themselves within milliseconds; and where that is of no
/// use, the directed yield.
pub(super) fn try_yielding(driver: &Arc<Driver>) {
    if driver.trial().is_due() {
        let of_thread = Arc::clone(driver);
        let started = thread::Builder::new().name("yield-trial".to_owned()).spawn(move || {
            of_thread.trial().make();
            if of_thread.trial().withdraws() {
                of_thread.hypercalls().make_trial_at_once();
            }
        });
        if let Err(error) = started {
            driver.trial().note(Err(error));
        }
    }
}

/// Sleeps; false if the helper is to end.
fn sleep_until(at: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Acquire) {
            return false;
        }
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::park_timeout(left);
    }
}
