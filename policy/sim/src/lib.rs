// SPDX-License-Identifier: Apache-2.0
//! A simulated host: the pause and placement policies, unchanged, on machines of any size.
//!
//! A deterministic discrete-event model. Host CPUs with fair runqueues run vCPUs; vCPUs run programs of work, locks,
//! interrupts and sleep; hardware and kernel see pause loops as real ones do; [`policy::pause::decide`] and
//! [`policy::placement`] decide as they do on a live host. A run is a function of its scenario and one seed.
//!
//! Invariant: no I/O, no clock, no globals, no `unsafe`, no threads; time is integer nanoseconds; the same scenario and
//! seed give the same run, bit for bit, on every machine.

pub mod adversary;
pub mod driver;
pub mod engine;
pub mod fair;
pub mod guest;
pub mod host;
pub mod page;
pub mod rng;
pub mod scenario;
pub mod sweep;
pub mod timeline;
pub mod timers;
