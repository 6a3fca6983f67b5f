// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "sched_setaffinity and its kind have no safe wrapper")]
//! Which host CPUs a thread may run on.

use std::io;
use std::os::unix::thread::RawPthread;

use topology::cpu_set::CpuSet;
use topology::id::HostCpu;

/// Words of a mask: enough for the 8192 CPUs of the largest x86 kernel configuration.
const WORDS: usize = 128;
const BITS: usize = 64;

type Mask = [u64; WORDS];

/// Lets the calling thread run on these CPUs only.
///
/// # Errors
/// The kernel's own: `EINVAL` if none of them is online and allowed by the cpuset.
pub fn pin_this_thread(cpus: impl IntoIterator<Item = HostCpu>) -> io::Result<()> {
    set(0, cpus)
}

/// Lets a thread run on these CPUs only; 0 is the calling thread.
///
/// # Errors
/// The kernel's own: `EINVAL` if none of them is online and allowed by the cpuset, `ESRCH` if the thread has ended.
pub fn set(tid: i32, cpus: impl IntoIterator<Item = HostCpu>) -> io::Result<()> {
    let mask = mask(cpus)?;
    // SAFETY: the kernel reads as many bytes as the mask has.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(&mask), mask.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets a thread that need not have run yet run on these CPUs only.
///
/// # Errors
/// As of [`set`].
///
/// # Safety
/// `thread` is one that was not joined.
pub unsafe fn set_of_pthread(thread: RawPthread, cpus: impl IntoIterator<Item = HostCpu>) -> io::Result<()> {
    let mask = mask(cpus)?;
    // SAFETY: glibc hands the mask to the kernel, which reads as many bytes as it has; the caller vouches for `thread`.
    let result = unsafe {
        libc::pthread_setaffinity_np(
            thread as libc::pthread_t,
            size_of_val(&mask),
            mask.as_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// The CPUs the calling thread may run on.
///
/// # Errors
/// The kernel's own.
pub fn of_this_thread() -> io::Result<CpuSet<HostCpu>> {
    of(0)
}

/// The CPUs a thread may run on; 0 is the calling thread.
///
/// # Errors
/// The kernel's own: `ESRCH` if the thread has ended.
pub fn of(tid: i32) -> io::Result<CpuSet<HostCpu>> {
    let mut mask: Mask = [0; WORDS];
    // SAFETY: the kernel writes at most as many bytes as the mask has.
    let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // Asked for every vCPU at every look, and nearly all words are 0.
    let words = (0..).zip(mask).filter(|(_, bits)| *bits != 0);
    Ok(words.flat_map(|(word, bits)| ones(bits).map(move |bit| HostCpu(word * 64 + bit))).collect())
}

/// The places of the bits that are set, the lowest first.
fn ones(bits: u64) -> impl Iterator<Item = u32> {
    let without_lowest = |bits: &u64| Some(bits & (bits - 1)).filter(|bits| *bits != 0);
    std::iter::successors(Some(bits).filter(|bits| *bits != 0), without_lowest).map(u64::trailing_zeros)
}

fn mask(cpus: impl IntoIterator<Item = HostCpu>) -> io::Result<Mask> {
    let mut mask = [0; WORDS];
    for cpu in cpus {
        let word = mask.get_mut(cpu.index() / BITS).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu.index() % BITS);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_it_was_put() {
        let before = of_this_thread().unwrap();
        let first = before.lowest().unwrap();
        pin_this_thread([first]).unwrap();
        assert_eq!(of_this_thread().unwrap().iter().collect::<Vec<_>>(), [first]);
        assert!(pin_this_thread([HostCpu(1 << 20)]).is_err());
        pin_this_thread(before.iter()).unwrap();
    }

    #[test]
    fn bits_are_found_from_the_lowest_on() {
        assert_eq!(ones(0).count(), 0);
        assert_eq!(ones(1 << 63 | 0b1010).collect::<Vec<_>>(), [1, 3, 63]);
        assert_eq!(ones(u64::MAX).count(), 64);
    }

    #[test]
    fn no_cpu_at_all_is_refused() {
        assert_eq!(set(0, []).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
