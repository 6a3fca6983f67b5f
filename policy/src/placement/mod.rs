// SPDX-License-Identifier: Apache-2.0
//! Where vCPU threads and guest memory go.

mod asym;
mod balance;
mod board;
mod decision;
mod error;
mod floor;
mod groups;
mod guest;
mod homes;
mod numa;
mod plan;
pub mod rate;
mod search;
mod seats;
mod view;

pub use balance::{Balancer, Config, Pass, Stats};
pub use decision::{Decision, Place, Rule, Rules, RunnerUp};
pub use error::PlacementError;
pub use guest::{Claim, Guest, GuestCpu, GuestNode, Mode, Wishes};
pub use plan::{Home, Note, Plan, plan};
pub use search::scan_budget;
pub use view::{CpuLoad, FULL, Snapshot, VcpuLoad};
