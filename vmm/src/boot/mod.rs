// SPDX-License-Identifier: Apache-2.0
//! Kernel images and the protocols that start them: what a file is, what is wrong with it, where it goes, what it is told.
//!
//! A file is untrusted. Every number in it is checked before it is used, with one error for each way to be wrong, and
//! nothing is written outside the guest's RAM or on what belongs to the monitor.

pub mod bzimage;
pub mod command_line;
pub mod elf;
pub mod image;
pub mod initrd;
pub mod long_mode;
pub mod pvh;
pub mod reset_vector;
pub mod zero_page;

#[cfg(test)]
mod mutation_tests;
