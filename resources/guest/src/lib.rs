// SPDX-License-Identifier: Apache-2.0
//! What runs in the Linux guests of an experiment, and how the monitor's side reads what it says.
//!
//! ```text
//! plan: "dbench clients=16" ──► Job ──► word on the kernel's command line ──► agent ──► the tool
//!                                                                               │
//!                              experiment ◄── Line ◄── serial port ◄── tool's output, parsed
//! ```
//! [`job`], [`line`](mod@line), [`output`] and [`cpu_time`] are compiled into the agent too, so that the guest and the
//! monitor cannot disagree. README.md describes the guest for users. Invariant: everything here is pure; the programs are
//! bytes.

pub mod cpu_time;
pub mod job;
pub mod line;
pub mod output;

/// The agent: a static program that runs a [`job::Job`] behind a barrier and says what came of it.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));

/// ebizzy, a static program.
pub static EBIZZY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ebizzy"));

/// One unit of the workload `kernbuild`, a script for busybox's shell.
pub static BUILD_UNIT: &str = include_str!("../build-unit.sh");

/// What the guest's init runs: the agent, with the kernel silent.
pub static AGENT_SCRIPT: &str = include_str!("../agent.sh");

#[cfg(test)]
#[path = "../ebizzy/main.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "a program, of which the tests use a part")]
mod ebizzy;

#[cfg(test)]
#[path = "../agent/main.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "a program, of which the tests use a part")]
#[allow(clippy::duplicate_mod, reason = "the program has the modules that it shares with the monitor compiled in")]
mod agent;
