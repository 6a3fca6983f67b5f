// SPDX-License-Identifier: Apache-2.0
//! The engine: CPUs, tasks and time.
//!
//! ```text
//! timers -> cpu_event  a segment of a CPU ends, or its tick comes     cpu.rs
//!        -> task_event a sleep or a park runs out                     guest.rs
//!        -> balance    a VM's placement is looked at again            placing.rs
//!        -> numa_scan  a thread scans its memory                      numa.rs
//! sched.rs  who runs where: pick, wake, block, pull, tick
//! asym.rs   and among CPUs that are not equal
//! guest.rs  what a task does on its CPU: the steps of its program
//! sync.rs   locks, barriers, interrupts, messages
//! pairs.rs  vCPUs that keep yielding to each other, for placement
//! pause.rs  pause loops: hardware, monitor, policy; kernel.rs the kernel's handler
//! ```
//! At every moment a CPU is in one segment with a known end. Whatever changes that (a lock is passed on, a task wakes, the
//! scheduler wants the CPU) ends the segment early, books its time, and starts another.
//!
//! Properties, each a test of the same name in `tests/engine.rs`:
//! - every nanosecond of every CPU and of every task is accounted once
//! - no wake up is lost
//! - a lock has one owner, and FIFO locks are passed on in order of arrival
//! - the same seed gives the same trace, and another seed another

mod asym;
mod cpu;
mod guest;
mod histogram;
mod kernel;
mod numa;
mod pairs;
mod pause;
mod placing;
mod result;
mod sched;
mod start;
mod state;
mod sync;
mod trace;
mod world;

pub use histogram::Histogram;
pub use result::{Outcome, VmOutcome};
pub use state::{Account, Counts, TaskLedger};
pub use trace::{Trace, TraceEvent};
pub use world::{Audit, SimError, World};
