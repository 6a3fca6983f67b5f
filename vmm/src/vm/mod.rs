// SPDX-License-Identifier: Apache-2.0
//! A machine from description to end, in typed stages: each can only be made from the one before.
//!
//! ```text
//! Machine --map--> WithMemory --load--> Loaded --devices--> WithDevices --vcpus--> Assembled --start--> Running --> Finished
//! ```
//! A stage that fails drops what the earlier ones made: no stage leaves anything half-done behind.

pub mod accesses;
pub mod assembly;
pub mod checkup;
pub mod console;
pub mod end;
pub mod error;
pub mod event_loop;
mod input;
pub mod observed;
pub mod parts;
pub mod payload;
pub mod running;
pub mod tables;
