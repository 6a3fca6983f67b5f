// SPDX-License-Identifier: Apache-2.0
//! Overcommit experiments: what is compared, in which order, and what the numbers say.
//!
//! ```text
//! plan file ──► Plan ──► Schedule ──► cells, one by one ──► samples ──► analysis ──► page, tables
//!              (checked)  (by seed)   (whoever runs guests)  (kept raw)  (statistics)
//! ```
//! This room knows neither KVM nor how a guest is started: whoever runs a cell hands in its samples. Invariant: the same
//! plan on as many host CPUs is the same schedule, and the same samples are the same analysis.

pub mod analysis;
pub mod directory;
pub mod host;
pub mod lock;
pub mod look;
pub mod memory;
mod others;
pub mod plan;
pub mod program;
mod random;
pub mod report;
pub mod runner;
pub mod sample;
pub mod schedule;
pub mod stats;
