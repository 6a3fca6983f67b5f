// SPDX-License-Identifier: Apache-2.0
//! Where a vCPU's time went: in the guest, halted, polling, waiting for a CPU, in the kernel's and in our own exit work.
//!
//! Pure: [`Measured`] in, [`Ledger`] out; [`meter`] and [`thread_times`] do the measuring. Unit of account: nanoseconds of
//! wall time between entering the run loop and leaving it; a paused vCPU's clock stands still.
//!
//! | term | where it comes from |
//! |---|---|
//! | `waiting` | measured: the scheduler's `run_delay` of the thread, less what fell into our own exit work |
//! | `halted` | measured: KVM's `halt_wait_ns` and our clock around the wait for SIPI, at most the time the thread was off CPU without waiting for one |
//! | `polling` | measured: KVM's `halt_poll_success_ns + halt_poll_fail_ns` |
//! | `user` | measured: our clock between two calls of `KVM_RUN`, less the waiting in it. Parking is in it |
//! | `guest` | sampled: the kernel charges the scheduler tick to the guest if it hits guest code (`guest_time` of `stat`) |
//! | `kernel` | the remainder of wall time: exit work in KVM, instruction emulation (on software-virtualised KVM all of guest ring 0), page faults, host interrupts, and time a hypervisor below took |
//!
//! Invariant: the six terms add up to wall time, unless what was measured is more than wall time.

pub mod growing;
pub mod meter;
pub mod thread_times;

/// What was measured of a vCPU while it was in the run loop, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Wall time in the run loop.
    pub wall_ns: u64,
    /// On a CPU, by the thread's CPU clock.
    pub cpu_ns: u64,
    /// Runnable without a CPU (`run_delay`).
    pub waited_ns: u64,
    /// In guest code, sampled at the scheduler tick.
    pub guest_ns: u64,
    /// Halted, with what it took to be woken and run again (`halt_wait_ns`); `None` where KVM does not tell.
    pub halt_wait_ns: Option<u64>,
    /// Polling before a halt (`halt_poll_success_ns + halt_poll_fail_ns`); `None` where KVM does not tell.
    pub polled_ns: Option<u64>,
    /// In calls of `KVM_RUN` that only waited for INIT and SIPI.
    pub sipi_ns: u64,
    /// Between calls of `KVM_RUN`.
    pub outside_ns: u64,
    /// The part of it in stretches in which the thread was off CPU: so long that it must have been ([`meter::LONG_NS`]), or
    /// it let go of its CPU on purpose.
    pub outside_long_ns: u64,
}

/// Time off CPU that was not booked as waiting, in nanoseconds.
struct Sleep {
    halted: u64,
    /// Between calls of `KVM_RUN`.
    outside: u64,
    /// The rest.
    unbooked: u64,
}

impl Measured {
    fn sleep(&self) -> Sleep {
        // Neither on a CPU nor waiting for one: asleep, or robbed of a CPU that it seemed to have.
        let asleep = self.wall_ns.saturating_sub(self.cpu_ns).saturating_sub(self.waited_ns);
        let halted = match self.halt_wait_ns {
            Some(halt_wait) => asleep.min(halt_wait.saturating_add(self.sipi_ns)),
            None => asleep.saturating_sub(self.outside_long_ns),
        };
        let outside = (asleep - halted).min(self.outside_long_ns);
        Sleep { halted, outside, unbooked: asleep - halted - outside }
    }

    /// Time off CPU that nothing explains yet. Of a thread that waits for a CPU it is mostly this very wait, which the kernel
    /// books when it ends.
    #[must_use]
    pub fn unbooked_ns(&self) -> u64 {
        self.sleep().unbooked
    }
}

/// Where a vCPU's time went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// In guest code.
    pub guest_ns: u64,
    /// Halted, or not started by the guest yet.
    pub halted_ns: u64,
    /// Polling for an interrupt before a halt. 0 where KVM does not tell; then it is in `kernel_ns`.
    pub polling_ns: u64,
    /// Runnable, without a host CPU.
    pub waiting_ns: u64,
    /// In the kernel's exit work: the remainder.
    pub kernel_ns: u64,
    /// In our own exit work, parking included.
    pub user_ns: u64,
}

impl Ledger {
    /// Divides wall time up.
    #[must_use]
    pub fn of(measured: &Measured) -> Self {
        let m = measured;
        let Sleep { halted, outside: asleep_outside, .. } = m.sleep();
        let waited_outside = (m.outside_long_ns - asleep_outside).min(m.waited_ns);
        let user = m.outside_ns.saturating_sub(waited_outside);
        let inside_cpu = m.cpu_ns.saturating_sub(user.saturating_sub(asleep_outside));
        let polling = m.polled_ns.unwrap_or(0).min(inside_cpu);
        let guest = m.guest_ns.min(inside_cpu - polling);
        let explained = [halted, polling, m.waited_ns, user, guest].into_iter().fold(0, u64::saturating_add);
        Self {
            guest_ns: guest,
            halted_ns: halted,
            polling_ns: polling,
            waiting_ns: m.waited_ns,
            kernel_ns: m.wall_ns.saturating_sub(explained),
            user_ns: user,
        }
    }

    /// Sum of the terms.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.terms().into_iter().fold(0, |sum, (_, ns)| sum.saturating_add(ns))
    }

    /// The terms with their stable names, in the order of the report.
    #[must_use]
    pub const fn terms(&self) -> [(&'static str, u64); 6] {
        [
            ("guest", self.guest_ns),
            ("halted", self.halted_ns),
            ("polling", self.polling_ns),
            ("waiting", self.waiting_ns),
            ("kernel", self.kernel_ns),
            ("user", self.user_ns),
        ]
    }
}

/// As the report and the control API tell it.
impl From<&Ledger> for api::wire::Ledger {
    fn from(ledger: &Ledger) -> Self {
        Self {
            guest: ledger.guest_ns,
            halted: ledger.halted_ns,
            polling: ledger.polling_ns,
            waiting: ledger.waiting_ns,
            kernel: ledger.kernel_ns,
            user: ledger.user_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread of 100 ms that ran for 40, waited for 50 and slept for 10.
    const BASE: Measured = Measured {
        wall_ns: 100 * MS,
        cpu_ns: 40 * MS,
        waited_ns: 50 * MS,
        guest_ns: 30 * MS,
        halt_wait_ns: Some(12 * MS),
        polled_ns: Some(MS),
        sipi_ns: 0,
        outside_ns: 2 * MS,
        outside_long_ns: 0,
    };

    #[test]
    fn a_halt_ends_when_the_thread_is_woken_not_when_it_runs() {
        let ledger = Ledger::of(&BASE);
        assert_eq!((ledger.halted_ns, ledger.waiting_ns), (10 * MS, 50 * MS));
        assert_eq!((ledger.guest_ns, ledger.polling_ns, ledger.user_ns), (30 * MS, MS, 2 * MS));
        assert_eq!(ledger.kernel_ns, 7 * MS);
    }

    #[test]
    fn a_wait_that_goes_on_is_not_booked_yet() {
        assert_eq!(BASE.unbooked_ns(), 0, "10 ms off CPU, a halt of 12 ms");
        assert_eq!(Measured { wall_ns: 107 * MS, ..BASE }.unbooked_ns(), 5 * MS);
    }

    #[test]
    fn waiting_in_our_own_exit_work_is_counted_once() {
        let ledger = Ledger::of(&Measured { outside_ns: 22 * MS, outside_long_ns: 20 * MS, ..BASE });
        assert_eq!((ledger.waiting_ns, ledger.user_ns, ledger.total_ns()), (50 * MS, 2 * MS, 100 * MS));
    }

    #[test]
    fn parking_is_our_own_work_and_no_halt() {
        let parked = Measured { halt_wait_ns: Some(0), outside_ns: 12 * MS, outside_long_ns: 10 * MS, ..BASE };
        let ledger = Ledger::of(&parked);
        assert_eq!((ledger.halted_ns, ledger.user_ns, ledger.total_ns()), (0, 12 * MS, 100 * MS));
    }

    #[test]
    fn guest_ring_0_that_is_emulated_is_kernel_time() {
        let ledger = Ledger::of(&Measured { guest_ns: 0, ..BASE });
        assert_eq!((ledger.guest_ns, ledger.kernel_ns), (0, 37 * MS));
    }

    #[test]
    fn without_kvms_counters_sleep_is_halted_and_polling_is_kernel_time() {
        let ledger = Ledger::of(&Measured { halt_wait_ns: None, polled_ns: None, ..BASE });
        assert_eq!((ledger.halted_ns, ledger.polling_ns, ledger.kernel_ns), (10 * MS, 0, 8 * MS));
    }

    proptest! {
        #[test]
        fn the_terms_add_up_to_wall_time(
            (cpu, waited, asleep) in (0..1000 * MS, 0..1000 * MS, 0..1000 * MS),
            (guest, halted, polled) in (0..2000 * MS, prop::option::of(0..2000 * MS), prop::option::of(0..2000 * MS)),
            (outside_share, long_share) in (0u64..=100, 0u64..=100),
        ) {
            let wall_ns = cpu + waited + asleep;
            // Short stretches outside are on a CPU; long ones may be anywhere.
            let outside_long_ns = (waited + asleep) * long_share / 100;
            let outside_ns = outside_long_ns + cpu * outside_share / 100;
            let ledger = Ledger::of(&Measured {
                wall_ns, cpu_ns: cpu, waited_ns: waited, guest_ns: guest, halt_wait_ns: halted, polled_ns: polled,
                sipi_ns: 0, outside_ns, outside_long_ns,
            });
            // What is known too little of is where within a long stretch a halt's wake-up lies.
            let over = ledger.total_ns().saturating_sub(wall_ns);
            prop_assert!(ledger.total_ns() >= wall_ns);
            prop_assert!(over <= outside_long_ns, "{over}");
        }

        #[test]
        fn no_measurement_overflows(numbers in prop::array::uniform9(any::<u64>())) {
            let [wall_ns, cpu_ns, waited_ns, guest_ns, halted, polled, sipi_ns, outside_ns, outside_long_ns] = numbers;
            let ledger = Ledger::of(&Measured {
                wall_ns, cpu_ns, waited_ns, guest_ns, halt_wait_ns: Some(halted), polled_ns: Some(polled), sipi_ns,
                outside_ns, outside_long_ns,
            });
            prop_assert!(ledger.total_ns() >= wall_ns);
        }
    }
}
