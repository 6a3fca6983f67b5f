// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "futex has no wrapper in libc")]
//! Blocking a vCPU thread and waking it: one futex word a thread.
//!
//! A thread arms its word while it holds the driver's lock, and waits after it let go. Whoever wakes it changes the word
//! first; so does the handler of a kick. Invariant: a wait ends at its bound at the latest, and a wake-up or a kick that
//! comes after the word was armed is never lost, for the kernel compares the word before it blocks.

use std::sync::atomic::{AtomicU32, Ordering};

use policy::time::Nanos;

use super::clock;
use crate::vcpu::kick::{self, PARKED};

const AWAKE: u32 = 0;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Another thread woke it.
    ByName,
    /// A request for the thread, or a signal of ours, is to be looked at.
    ByKick,
    /// Its bound came.
    ByTime,
}

/// The futex word of one thread.
#[derive(Debug, Default)]
pub struct Parker {
    word: AtomicU32,
}

impl Parker {
    /// From now on a wake-up counts, also before [`Parker::wait`]. Called by the owning thread.
    pub fn arm(&self) {
        self.word.store(PARKED, Ordering::SeqCst);
    }

    /// Blocks the owning thread, which has armed its word, until it is woken, kicked, or `until` has come.
    pub fn wait(&self, until: Nanos) -> Woken {
        let deadline = clock::timespec(until);
        let _watch = kick::watch(&self.word);
        // A kick that came before the word was watched left its mark elsewhere.
        let kicked = kick::has_arrived();
        while !kicked && self.word.load(Ordering::SeqCst) == PARKED {
            if self.sleep(&deadline) == Some(libc::ETIMEDOUT) {
                break;
            }
        }
        match self.word.swap(AWAKE, Ordering::SeqCst) {
            PARKED if kicked => Woken::ByKick,
            PARKED => Woken::ByTime,
            AWAKE => Woken::ByName,
            _ => Woken::ByKick,
        }
    }

    fn sleep(&self, deadline: &libc::timespec) -> Option<i32> {
        // SAFETY: the word and the deadline outlive the call; the kernel reads them and keeps no reference. The deadline
        // of FUTEX_WAIT_BITSET is absolute on CLOCK_MONOTONIC (futex(2)).
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                PARKED,
                std::ptr::from_ref(deadline),
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        if result == 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
    }

    /// Marks the thread as woken; true if it was parked, and then [`Parker::rouse`] is to be called, best after the lock
    /// is let go.
    pub fn release(&self) -> bool {
        self.word.swap(AWAKE, Ordering::SeqCst) == PARKED
    }

    /// Whether the thread waits, or is about to.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.word.load(Ordering::Relaxed) == PARKED
    }

    /// Lets a released thread run.
    pub fn rouse(&self) {
        // SAFETY: the word outlives the call; FUTEX_WAKE only uses its address.
        unsafe {
            libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_bound_or_by_name() {
        let parker = Parker::default();
        parker.arm();
        let start = clock::now();
        assert_eq!(parker.wait(start.after(2_000_000)), Woken::ByTime);
        assert!(clock::now().since(start) >= 2_000_000);
        parker.arm();
        assert!(parker.is_parked() && parker.release() && !parker.is_parked());
        assert!(!parker.release(), "it is awake already");
        assert_eq!(parker.wait(clock::now().after(1_000_000_000)), Woken::ByName);
    }

    #[test]
    fn the_mark_of_a_kick_ends_a_wait() {
        let parker = Parker::default();
        parker.arm();
        kick::mark(&parker.word);
        assert_eq!(parker.wait(clock::now().after(1_000_000_000)), Woken::ByKick);
        kick::mark(&parker.word);
        assert!(!parker.release(), "a kick leaves a thread that is not parked alone");
    }
}
