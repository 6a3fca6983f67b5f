// SPDX-License-Identifier: Apache-2.0
//! Puts vCPU threads and guest memory where `policy::placement` says, and keeps them there.
//!
//! ```text
//! host::sysfs ─► topology::host ─┐
//! host::registry ─► claims ──────┼─► policy::placement::plan ─► start: claim, mbind, affinity, before guest code runs
//! config: --placement, --numa ───┘
//! /proc ─► loads ─► policy::placement::Balancer ─► live: affinity and claim, every period while the guest runs
//! ```
//! [`start`] decides and applies once; [`confine`] is what both make of places (pure); [`memory`] ties guest nodes to
//! host nodes and asks the kernel what became of it; [`loads`] turns `/proc` into loads (pure), `runqueues` finds out what can be known of how many tasks share a CPU; [`live`] is the thread
//! that goes on deciding, `mover` one look of it, `follow` memory that goes after its vCPUs, [`pairs`] who keeps yielding to
//! whom, [`account`] what it did; [`control`] asks and changes it from outside; `crew` is the threads all
//! that is done to.
//!
//! Invariant: what could not be done is said, in the run's output and in its report, and costs placement, never the run,
//! unless the user asked for it by name: then it is an error before the guest starts.

pub mod account;
mod change;
pub mod confine;
pub mod control;
mod crew;
mod decide;
pub mod error;
mod follow;
pub mod live;
pub mod loads;
pub mod memory;
mod mover;
pub mod pairs;
mod runqueues;
mod site;
pub mod start;
