// SPDX-License-Identifier: Apache-2.0
//! An emulated host with hardware virtualisation, of any shape, to run the monitor in.
pub mod cpio;
pub mod results;
pub mod shape;
pub mod soundness;
pub mod watchdog;
