// SPDX-License-Identifier: Apache-2.0
//! A small BPF program, made and loaded at run time: no compiler, no loader library, nothing kept in the kernel.
//!
//! [`btf`] reads where the kernel at hand keeps its fields, [`program`] puts the instructions together, [`table`] and
//! [`load`] bring both into the kernel. The program is of type `SYSCALL`: it is attached to nothing and runs only when
//! this process calls it, in this process's context. It needs `CAP_BPF` and `CAP_PERFMON`.
//!
//! The licence string handed to the kernel is "GPL": the kernel lets only programs that declare a GPL-compatible licence
//! call its functions (kernel/bpf/verifier.c, "cannot call kernel function from non-GPL compatible program"). It speaks of
//! the few dozen instructions that are loaded; whoever passes those on does so under that licence too.

pub mod btf;
pub mod load;
pub(crate) mod program;
pub(crate) mod table;

pub use program::FarMember;
