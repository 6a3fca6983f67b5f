// SPDX-License-Identifier: Apache-2.0
//! What the monitor asks of the host besides KVM, one subject a file: each module says which.

pub mod affinity;
pub mod allocator;
pub mod bpf;
pub mod child;
pub mod core_scheduling;
pub mod facts;
pub mod huge_pages;
pub mod limits;
pub mod memory_use;
pub mod numa_memory;
pub mod output;
pub(crate) mod perf;
pub mod registry;
pub mod runqueue;
pub mod signals;
pub mod stack;
pub mod sysfs;
pub mod tasks;
pub mod terminal;
