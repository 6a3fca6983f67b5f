// SPDX-License-Identifier: Apache-2.0
//! Pause loops: seen by a source, decided by [`policy::pause`], acted upon by a mechanism, counted.
//!
//! ```text
//! port write, forced exit, look  ->  VcpuPause (the vCPU's thread)  ->  Driver: view, policy, deed  ->  yield, park, hypercall
//!                                                                            |                              |
//!                                                              decision log, counters  <-  outcome  <-------+
//! ```
//! [`setup`] puts the parts together, and [`control`] finds out what the host grants, then and whenever something else is
//! asked for. Invariant: whatever a guest reports is a hint;
//! it costs the guest's own vCPU a bounded time and no other VM anything.

mod book;
pub mod clock;
pub mod control;
mod core;
mod counted;
mod deed;
mod directed;
pub mod driver;
pub mod effective;
mod exact_view;
mod forcing;
pub mod helper;
pub mod hypercall;
pub mod inject;
mod log;
mod lookout;
mod mechanisms;
mod order;
pub mod park;
pub mod partners;
pub mod port;
pub mod recent;
mod rules;
pub mod runqueue;
pub mod sampler;
pub mod seat;
pub mod setup;
pub mod source;
pub mod thread;
mod told;
pub mod tracepoint;
pub mod trial;
pub mod yielding;

pub use control::{Change, ChangeError, Control};
pub use log::{ReplayError, replay_file};
