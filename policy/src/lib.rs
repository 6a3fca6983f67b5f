// SPDX-License-Identifier: Apache-2.0
//! Decisions: what to do about a pause loop, and where a vCPU thread goes.
//!
//! Facts come in as plain values, a decision goes out, and everything else (KVM, threads, clocks, sysfs) stays with the
//! caller. That is what lets one policy run unchanged in a unit test, in the simulator and against a live guest.
//!
//! Invariant: no I/O, no clock, no globals, no `unsafe`, no randomness; the same input gives the same decision.

pub mod pause;
pub mod placement;
pub mod time;
