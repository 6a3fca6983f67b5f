// SPDX-License-Identifier: Apache-2.0
//! Whether the kernel's types are published and a small BPF program of the kind that reads runqueues may be loaded.
use std::fs;
use std::io;

use super::Finding;
use crate::host::bpf::load;

const BTF: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn inspect() -> Vec<Finding> {
    let types = fs::metadata(BTF).map(|found| found.len());
    vec![btf(&types), program(&load::load_trivial())]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Answer;

    #[test]
    fn each_refusal_has_its_remedy() {
        let refused = |errno| program(&Err(io::Error::from_raw_os_error(errno)));
        assert!(refused(libc::EPERM).remedy.is_some_and(|remedy| remedy.contains("CAP_BPF")));
        assert!(refused(libc::EINVAL).remedy.is_some_and(|remedy| remedy.contains("5.14")));
        assert_eq!(program(&Ok(())).answer, Answer::Yes);
        assert_eq!(btf(&Err(io::ErrorKind::NotFound.into())).answer, Answer::No);
    }
}
