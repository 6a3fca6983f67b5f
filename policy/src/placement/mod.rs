// SPDX-License-Identifier: Apache-2.0
//! Where vCPU threads and guest memory go.

mod decision;
mod error;
mod floor;
mod guest;
mod homes;
mod plan;
mod seats;

pub use decision::{Decision, Place, Rule, Rules, RunnerUp};
pub use error::PlacementError;
pub use guest::{Claim, Guest, GuestCpu, GuestNode, Mode, Wishes};
pub use plan::{Home, Note, Plan, plan};
