// SPDX-License-Identifier: Apache-2.0
//! The monitor: the only crate that knows KVM, threads, guest memory and the host.
//!
//! Flags and files become a [`config::Machine`]; a run becomes a [`report::Report`].

pub mod config;
pub mod report;
