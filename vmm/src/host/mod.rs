// SPDX-License-Identifier: Apache-2.0
//! What the monitor asks of the host besides KVM, one subject a file: affinity, allocator, a BPF program, facts for the
//! report, limits, its own memory, runqueues, signals, terminal.

pub mod affinity;
pub mod allocator;
pub mod bpf;
pub mod facts;
pub mod limits;
pub mod memory_use;
pub mod runqueue;
pub mod signals;
pub mod terminal;
