// SPDX-License-Identifier: Apache-2.0
//! vCPU threads: what can be asked of one ([`control`]), what it does ([`run_loop`]), and how it is woken ([`kick`]).
//!
//! A thread is a state machine with four states (created, running, paused, finished). Requests come in one at a time
//! and each is answered; a guest that never leaves `KVM_RUN` by itself is kicked out of it by a signal.

pub mod control;
pub mod counters;
pub mod hook;
pub mod kick;
pub mod run_loop;
mod shared;
pub mod thread;
pub mod watch;
