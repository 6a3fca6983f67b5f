// SPDX-License-Identifier: Apache-2.0
//! The control API's side of a machine: what clients see of it, and what becomes of what they ask for.
//!
//! Two threads meet here. The API's own thread reads: everything it looks at is an atomic, a file of `/proc` or a short copy,
//! and no vCPU waits for it. The main thread changes: what is asked for stands in a queue of the [`station`], and is carried
//! out ([`carry_out`]) between two events of the machine, one at a time, so that generations need no other lock. Nothing of
//! this exists in a run without an API.

pub mod carry_out;
mod endpoint;
mod numbers;
mod pausing;
mod places;
pub mod reception;
mod refused;
pub mod station;
pub mod thresholds;
mod vcpus;
pub mod view;

pub use endpoint::{Endpoint, EndpointError};
