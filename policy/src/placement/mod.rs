// SPDX-License-Identifier: Apache-2.0
//! Where vCPU threads and guest memory go, at start and while the guest runs.
//!
//! **Problem.** Guests on a busy host lose time to threads that share a core while another idles, to memory that is far
//! away, and to each other. Kernels know rules against that; nobody's virtual-machine monitor applies them, because
//! nobody's placement sees the guest's shape and the host's at once.
//!
//! **Unit of account.** Loads are 1024ths of a CPU ([`FULL`]). Scores are what each [`Rule`] says; they are compared
//! only within a rule.
//!
//! **Terms.** A CPU is *usable* if the process may run there; *empty* if it has no vCPU of this VM; *idle* if it is
//! empty, unclaimed, nothing else runs there for long and, where that is known, its runqueue is empty now. A *home* is
//! the host node where a guest node's memory is.
//!
//! **At start**, [`plan`] gives every vCPU a CPU. **While the guest runs**, [`Balancer::pass`] looks at a [`Snapshot`]
//! every period and says what moves. Every decision carries its rule, its score and the runner-up; every rule can be
//! switched off alone ([`Rules`]). Seeds: asym-packing, numa-move-once-per-node, cluster-scan, newidle-rate-limit.
//!
//! **Properties**, each the name of a test:
//! - no two vCPUs on one CPU while an allowed one is empty;
//! - the allowed set is obeyed;
//! - equal scores never move;
//! - the next balance is never in the past, also when the clock wraps;
//! - a busy CPU never uses the asym rule;
//! - a CPU whose runqueue is not empty is not idle;
//! - the only task of a better CPU is never taken;
//! - a length that says what utilisation says changes nothing;
//! - the scan budget shrinks monotonically and without a jump;
//! - the move decision is taken once per node;
//! - total moves per pass are bounded;
//! - passes stop when nothing improves.
//!
//! **Cost.** A pass sorts vCPUs and CPUs a fixed number of times and examines a bounded number of candidates:
//! n log n in vCPUs plus CPUs.

mod affinity;
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
mod pairing;
mod pairs;
pub mod picture;
mod plan;
pub mod rate;
mod rehome;
mod search;
mod seats;
mod table;
mod view;

pub use affinity::affinities;
pub use balance::{Balancer, Config, MOST_MOVES, Pass, Stats};
pub use decision::{Decision, Place, Rule, Rules, RunnerUp};
pub use error::PlacementError;
pub use guest::{Claim, Guest, GuestCpu, GuestNode, Mode, Wishes};
pub use pairing::{PairCounts, Pairing, Waits, Yielded};
pub use plan::{Home, Note, Plan, plan};
pub use rehome::rehome;
pub use search::scan_budget;
pub use table::table;
pub use view::{CpuLoad, FULL, Pair, Runqueue, Snapshot, Step, VcpuLoad};
