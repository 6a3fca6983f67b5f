// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "getrlimit, and a signal mask for a thread that only waits")]
//! A stack that is large enough, whatever `ulimit -s` says.
//!
//! Invariant: where the limit leaves room nothing is changed and no thread is started.

use std::mem::MaybeUninit;
use std::{ptr, thread};

/// What the monitor never needs as much of; that of threads it starts.
const ROOM_BYTES: usize = 2 << 20;

/// Runs `work` with a stack of at least 2 MiB: on the calling thread, the main one, if the limit leaves so much, else on
/// another, which takes over the signals. Without that it is tried here.
pub fn with_room<T: Send>(work: fn() -> T) -> T {
    if limit_bytes() >= ROOM_BYTES as u64 {
        return work();
    }
    thread::scope(|scope| {
        let room = thread::Builder::new().name("main".to_owned()).stack_size(ROOM_BYTES);
        let Ok(thread) = room.spawn_scoped(scope, work) else { return work() };
        leave_signals_to_others();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn limit_bytes() -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the kernel writes one rlimit, whose every pattern is valid.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_STACK, limit.as_mut_ptr()) == 0 {
            limit.assume_init().rlim_cur
        } else {
            libc::RLIM_INFINITY
        }
    }
}

/// A signal to the process goes to a thread that does not block it, with whatever that one has it do.
fn leave_signals_to_others() {
    let mut all = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigfillset initialises the set, which the mask is read from; a null old mask is allowed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_done_with_its_room() {
        fn deep(left: usize) -> usize {
            let block = std::hint::black_box([left; 128]);
            if left == 0 { 0 } else { 1 + deep(left - 1) + block[0] - left }
        }
        assert_eq!(with_room(|| deep(200)), 200);
    }
}
