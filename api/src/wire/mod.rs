// SPDX-License-Identifier: Apache-2.0
//! What crosses the socket: one type for each JSON object, in both directions.
//!
//! Keys are stable: they keep their meaning, and new ones are added beside them. What a client sends knows no key but those
//! documented; what it gets may have new ones in later versions. A key that a machine may not have is absent, never `null`.
//! Numbers carry their unit in their name. Lists of CPUs are in the kernel's format, `"0-3,8"`.

mod configuration;
mod decision;
mod event;
mod host;
mod pause;
mod placement;
mod problem;
mod stats;
mod thresholds;
mod topology;
mod vcpu;
mod vm;

pub use configuration::Configuration;
pub use decision::{Act, Decision, Decisions, Pair};
pub use event::{Event, EventKind};
pub use host::{Host, HostCpuInfo, HostNodeInfo};
pub use pause::{Grant, Parameter, Pause, PauseChange, PauseMode};
pub use placement::{Move, NodeMemory, PairCounts, Place, Placement, PlacementChange, PlacementMode, RunnerUp};
pub use problem::{Code, Problem};
pub use stats::{ApiStats, DeviceStats, MonitorStats, PlacementStats, Stats};
pub use thresholds::{ThresholdRange, Thresholds, ThresholdsChange};
pub use topology::{Cache, CacheKind, Node, Shape, Topology, VcpuPlace};
pub use vcpu::{AffinityChange, Ledger, PauseCounters, Vcpu, VcpuState, Vcpus, Yields};
pub use vm::{Exit, Generation, StateChange, Vm, VmState, WantedState};
