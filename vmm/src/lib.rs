// SPDX-License-Identifier: Apache-2.0
//! The monitor: the only crate that knows KVM, threads, guest memory and the host.
//!
//! Flags and files become a [`config::Machine`]; a run becomes a [`report::Report`].

pub mod bench;
pub mod boot;
pub mod client;
pub mod command;
pub mod config;
pub mod control;
pub mod experiment;
pub mod host;
pub mod inspect;
pub mod kvm;
pub mod layout;
pub mod ledger;
pub mod memory;
pub mod offer;
pub mod pause;
pub mod placement;
pub mod report;
pub mod top;
pub mod vcpu;
pub mod vm;
