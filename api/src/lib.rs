// SPDX-License-Identifier: Apache-2.0
//! The control API of a machine: what a program or a person can see of it and change about it, over HTTP.
//!
//! This room knows neither KVM nor threads of a guest. [`monitor::Monitor`] is all it knows of a machine; `vmm` implements it
//! and [`fake::FakeMonitor`] does too, for tests of clients. [`wire`] is what crosses the socket, in both directions.
//!
//! Invariant: nothing that a client does makes this crate panic, block a vCPU, or use memory without a bound.

pub mod client;
pub mod events;
pub mod fake;
pub mod input;
mod metrics;
pub mod monitor;
mod routes;
pub mod serial;
pub mod server;
pub mod wire;
