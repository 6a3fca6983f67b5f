// SPDX-License-Identifier: Apache-2.0
//! The probe guest: its image, its command line, and the lines it prints.
//!
//! The guest itself is in `guest/`, a program without an operating system that this crate's build script compiles. It
//! is handed to the loader like any kernel. [`command_line`], [`record`] and [`value`] are compiled into both, so that the guest
//! and the monitor cannot disagree. README.md describes the guest for users.

pub mod command_line;
pub mod record;
pub mod report;
pub mod value;

/// The guest: an ELF64 executable for x86-64 with a PVH entry note and a 64-bit Linux-protocol entry.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe.elf"));

#[cfg(test)]
#[path = "../guest/tests.rs"]
#[expect(clippy::cast_possible_truncation, reason = "the guest is a 64-bit program and its casts are checked by range")]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "modules of a binary, of which the tests use a part")]
mod guest;
