// SPDX-License-Identifier: Apache-2.0
//! Whether the kernel's types are published and a small BPF program of the kind that reads runqueues may be loaded.

#![expect(unsafe_code, reason = "bpf(2) has no wrapper in libc")]

use std::fs;
use std::io;

use super::Finding;
use super::tracing::own_and_close;

const BTF: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn inspect() -> Vec<Finding> {
    let types = fs::metadata(BTF).map(|found| found.len());
    vec![btf(&types), program(&load_trivial())]
}

fn btf(size: &io::Result<u64>) -> Finding {
    match size {
        Ok(bytes) => Finding::yes("bpf.btf", format!("{BTF}, {} KiB", bytes >> 10)),
        Err(error) => Finding::no(
            "bpf.btf",
            format!("{BTF}: {error}"),
            "use a kernel with CONFIG_DEBUG_INFO_BTF; runqueue lengths are guessed from schedstat until then",
        ),
    }
}

fn program(loaded: &io::Result<()>) -> Finding {
    match loaded {
        Ok(()) => Finding::yes("bpf.load", "a program of type SYSCALL loads"),
        Err(error) => Finding::no(
            "bpf.load",
            format!("a program of type SYSCALL does not load: {error}"),
            match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => "run as root or with CAP_BPF and CAP_PERFMON",
                Some(libc::EINVAL) => "use a kernel of 5.14 or later, which has programs of type SYSCALL",
                Some(libc::ENOSYS) => "use a kernel with CONFIG_BPF_SYSCALL, and no seccomp filter on bpf",
                _ => "look at the kernel's messages (dmesg) for bpf",
            },
        ),
    }
}

/// The head of `union bpf_attr` for BPF_PROG_LOAD (`include/uapi/linux/bpf.h`); what follows is read as zero.
#[repr(C)]
struct ProgLoad {
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

/// Loads, and at once unloads, `return 0`.
fn load_trivial() -> io::Result<()> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const BPF_PROG_TYPE_SYSCALL: u32 = 31;
    /// Programs of this type must be sleepable.
    const BPF_F_SLEEPABLE: u32 = 1 << 4;
    /// `r0 = 0` (BPF_ALU64 | BPF_MOV | BPF_K) and `exit` (BPF_JMP | BPF_EXIT), the opcode in the lowest byte.
    const RETURN_0: [u64; 2] = [0xB7, 0x95];
    const SIZE: usize = size_of::<ProgLoad>();
    let attributes = ProgLoad {
        prog_type: BPF_PROG_TYPE_SYSCALL,
        insn_cnt: 2,
        insns: RETURN_0.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: BPF_F_SLEEPABLE,
    };
    // SAFETY: the kernel reads `SIZE` bytes of the struct, two instructions and a C string, all of which live through
    // the call, and writes nothing because there is no log.
    own_and_close(unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, SIZE) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Answer;

    #[test]
    fn the_struct_is_laid_out_as_the_kernel_reads_it() {
        assert_eq!(size_of::<ProgLoad>(), 48);
        assert_eq!(std::mem::offset_of!(ProgLoad, log_buf), 32);
        assert_eq!(std::mem::offset_of!(ProgLoad, prog_flags), 44);
    }

    #[test]
    fn each_refusal_has_its_remedy() {
        let refused = |errno| program(&Err(io::Error::from_raw_os_error(errno)));
        assert!(refused(libc::EPERM).remedy.is_some_and(|remedy| remedy.contains("CAP_BPF")));
        assert!(refused(libc::EINVAL).remedy.is_some_and(|remedy| remedy.contains("5.14")));
        assert_eq!(program(&Ok(())).answer, Answer::Yes);
        assert_eq!(btf(&Err(io::ErrorKind::NotFound.into())).answer, Answer::No);
    }
}
