// SPDX-License-Identifier: Apache-2.0
#![expect(unsafe_code, reason = "bpf(2) has no wrapper in libc")]
//! Loading and running a program by `bpf(2)`. When the verifier refuses, its last words are in the error.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `BPF_PROG_LOAD`.
const PROG_LOAD: libc::c_int = 5;
/// `BPF_PROG_TEST_RUN`: for this type of program, the way to run it.
const PROG_RUN: libc::c_int = 10;
/// `BPF_PROG_TYPE_SYSCALL`.
const TYPE_SYSCALL: u32 = 31;
/// Programs of this type must be sleepable.
const SLEEPABLE: u32 = 1 << 4;
/// Room for the verifier's log.
const LOG_BYTES: u32 = 256 * 1024;
/// How many of its last lines go into the error.
const LOG_LINES: usize = 6;

/// The kernel does not take the program.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not allowed.
    #[error("not allowed to load a BPF program ({0}); run as root or with CAP_BPF and CAP_PERFMON")]
    Permission(#[source] io::Error),
    /// Refused.
    #[error("the kernel refuses the BPF program ({source}); its verifier says: {log}")]
    Refused {
        /// The kernel's reason.
        source: io::Error,
        /// The verifier's last lines; "nothing" when it was not asked.
        log: String,
    },
}

/// `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used (include/uapi/linux/bpf.h); the kernel reads the rest as zero.
#[repr(C)]
struct LoadAttributes {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

/// `union bpf_attr` for `BPF_PROG_TEST_RUN`, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct RunAttributes {
    prog_fd: u32,
    retval: u32,
    data_size: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    ctx_size: [u32; 2],
    ctx: [u64; 2],
}

/// A program in the kernel; goes when this is dropped.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads a program of type `SYSCALL`.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(instructions: &[u64]) -> Result<Self, LoadError> {
        let source = match try_load(instructions, &mut []) {
            Ok(fd) => return Ok(Self { fd }),
            Err(error) => error,
        };
        if matches!(source.raw_os_error(), Some(libc::EPERM)) {
            return Err(LoadError::Permission(source));
        }
        // Once more, with room for the reason.
        let mut log = vec![0; LOG_BYTES as usize];
        match try_load(instructions, &mut log) {
            Ok(fd) => Ok(Self { fd }),
            Err(source) => Err(LoadError::Refused { source, log: last_lines(&log) }),
        }
    }

    /// Runs it once, here and now.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn run(&self) -> io::Result<()> {
        let prog_fd = self.fd.as_raw_fd().unsigned_abs();
        let mut attributes = RunAttributes { prog_fd, ..RunAttributes::default() };
        // SAFETY: the kernel reads the struct and writes its results into it; all pointers in it are null with size 0.
        let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_RUN, &raw mut attributes, size_of::<RunAttributes>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Loads, and at once unloads, a program that returns 0: whether this process may load any at all.
///
/// # Errors
/// The kernel's own.
pub(crate) fn load_trivial() -> io::Result<()> {
    /// `r0 = 0` (BPF_ALU64 | BPF_MOV | BPF_K) and `exit` (BPF_JMP | BPF_EXIT), the opcode in the lowest byte.
    const RETURN_0: [u64; 2] = [0xB7, 0x95];
    try_load(&RETURN_0, &mut []).map(drop)
}

/// Loads the program; the verifier writes into `log` if there is room.
fn try_load(instructions: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let has_log = !log.is_empty();
    let attributes = LoadAttributes {
        prog_type: TYPE_SYSCALL,
        insn_cnt: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        insns: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: u32::from(has_log),
        log_size: u32::try_from(log.len()).unwrap_or(0),
        log_buf: if has_log { log.as_mut_ptr() as u64 } else { 0 },
        kern_version: 0,
        prog_flags: SLEEPABLE,
    };
    // SAFETY: the kernel reads the struct, `insn_cnt` instructions and a C string, and writes at most `log_size` bytes
    // of `log`; all of them live through the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attributes, size_of::<LoadAttributes>()) };
    // SAFETY: a descriptor that the call has just made has no other owner.
    unsafe { owned(fd) }
}

/// The descriptor that a system call returned, or its error.
///
/// # Safety
/// `result` is what a system call that makes descriptors has just returned, with nothing called since.
pub(super) unsafe fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: by this function's contract.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The last lines of the verifier's log, in one line.
fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "nothing".to_owned() } else { lines[lines.len().saturating_sub(LOG_LINES)..].join(" | ") }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_structs_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!((size_of::<LoadAttributes>(), offset_of!(LoadAttributes, prog_flags)), (48, 44));
        assert_eq!((size_of::<RunAttributes>(), offset_of!(RunAttributes, repeat)), (64, 32));
        assert_eq!(offset_of!(RunAttributes, ctx), 48);
    }

    #[test]
    fn the_verifiers_last_words_are_kept() {
        let log = b"0: R1=ctx()\n\n1: (b7) r0 = 0\nR0 !read_ok\nprocessed 2 insns\n\0\0junk";
        assert_eq!(last_lines(log), "0: R1=ctx() | 1: (b7) r0 = 0 | R0 !read_ok | processed 2 insns");
        assert_eq!(last_lines(&[0; 8]), "nothing");
    }
}
