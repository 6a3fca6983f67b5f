// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "clock_gettime, for absolute times that the kernel's waits take as they are")]
//! The clock of everything about pause loops: CLOCK_MONOTONIC, in nanoseconds, read here and handed on.

use policy::time::Nanos;

/// The present.
#[must_use]
pub fn now() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel, or the vDSO, writes one timespec; CLOCK_MONOTONIC exists on every Linux, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(seconds.wrapping_mul(NS_PER_S).wrapping_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The point as the kernel's absolute waits take it.
#[must_use]
pub(super) fn timespec(at: Nanos) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(at.0 / NS_PER_S).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(at.0 % NS_PER_S).unwrap_or(0),
    }
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_survives_the_way_to_the_kernel() {
        let time = timespec(Nanos(3_000_000_007));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 7));
        let first = now();
        assert!(!now().is_before(first));
    }
}
