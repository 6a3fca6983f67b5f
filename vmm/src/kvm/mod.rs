// SPDX-License-Identifier: Apache-2.0
//! The kernel's virtual machines: one thin, typed wrapper a kernel object.
//!
//! Everything above speaks in our own types: exits are decoded once, in [`exit`], and CPUID crosses in [`cpuid`].

pub mod cpuid;
pub mod exit;
pub mod helper_vcpu;
mod msr;
pub mod stats;
pub mod system;
pub mod vcpu;
pub mod vm;
