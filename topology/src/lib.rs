// SPDX-License-Identifier: Apache-2.0
//! What a machine looks like, guest or host, and the bytes that say so.
//!
//! This crate is pure: no I/O, no clock, no globals, no `unsafe`. What it needs from the outside (CPUID values of the
//! host, sysfs text) is handed in, so everything here is a function from values to values.

mod error;
#[cfg(test)]
mod generate;
mod limits;
mod place;

pub mod acpi;
pub mod apic;
pub mod cache;
pub mod cpu_set;
pub mod cpuid;
pub mod doctor;
pub mod guest;
pub mod host;
pub mod id;
pub mod memory_map;
pub mod render;
pub mod report;
