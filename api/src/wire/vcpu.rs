// SPDX-License-Identifier: Apache-2.0
//! `/vcpus`: threads, where they are, and where their time went.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::cpu_set::CpuSet;
use topology::id::{ApicId, HostCpu, HostNode, NodeId, VcpuIndex};
use utoipa::ToSchema;

use super::Generation;

/// What a vCPU's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VcpuState {
    /// Not started by the monitor, or by the guest.
    Created,
    /// In the run loop, on a host CPU.
    Running,
    /// Runnable, without a host CPU. A vCPU that only waits because the one who looks is on its CPU is running.
    Waiting,
    /// Waits for an interrupt.
    Halted,
    /// The monitor has parked it until somebody names it as an owner.
    Parked,
    /// Stands still with the machine.
    Paused,
    /// Has come to its end.
    Stopped,
}

impl VcpuState {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Created, Self::Running, Self::Waiting, Self::Halted, Self::Parked, Self::Paused, Self::Stopped];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Halted => "halted",
            Self::Parked => "parked",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// Where time in the run loop went, in nanoseconds (docs/ledger.md). The terms add up to that time and only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// In guest code.
    pub guest: u64,
    /// Halted, or not started by the guest yet.
    pub halted: u64,
    /// Polling for an interrupt before a halt.
    pub polling: u64,
    /// Runnable, without a host CPU: what was stolen.
    pub waiting: u64,
    /// In the kernel's exit work.
    pub kernel: u64,
    /// In the monitor's own exit work.
    pub user: u64,
}

impl Ledger {
    /// The terms with their names, in the order of the documents.
    #[must_use]
    pub const fn terms(&self) -> [(&'static str, u64); 6] {
        [
            ("guest", self.guest),
            ("halted", self.halted),
            ("polling", self.polling),
            ("waiting", self.waiting),
            ("kernel", self.kernel),
            ("user", self.user),
        ]
    }
}

/// Actions about pause loops, and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Yields {
    /// All of them.
    pub attempted: u64,
    /// The CPU changed hands, or a parked vCPU was woken.
    pub boosted: u64,
    /// It did not.
    pub not_boosted: u64,
    /// Nobody wanted the CPU.
    pub nobody_waiting: u64,
}

/// What was done about a vCPU's pause loops. The keys are those of the report (docs/report.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseCounters {
    /// Pause events.
    pub events: u64,
    /// Of these, let pass without a decision.
    pub quiet: u64,
    /// Of these, forced by the tracepoint.
    #[serde(default)]
    #[schema(required)]
    pub forced: u64,
    /// Of these, left to the kernel, whose own yields were found to work.
    #[serde(default)]
    #[schema(required)]
    pub left_to_kernel: u64,
    /// PAUSE exits that the kernel counted; 0 where the tracepoint is not used.
    #[serde(default)]
    #[schema(required)]
    pub pause_exits: u64,
    /// Times the sampler looked at it.
    #[serde(default)]
    #[schema(required)]
    pub sampled: u64,
    /// Decisions to go on spinning.
    pub spins: u64,
    /// Actions.
    pub yields: Yields,
    /// Bail-outs by reason; a reason that never occurred is absent.
    pub bailed: BTreeMap<String, u64>,
    /// Parks.
    pub parks: u64,
    /// Time parked, in nanoseconds.
    pub parked_ns: u64,
    /// Time between a yield and the thread's next turn, in nanoseconds.
    pub yielded_ns: u64,
    /// CPU time given to others, in nanoseconds.
    pub donated_ns: u64,
    /// CPU time got from others, in nanoseconds.
    pub received_ns: u64,
    /// Holds by --inject-preemption.
    #[serde(default)]
    #[schema(required)]
    pub holds: u64,
    /// Time held, in nanoseconds.
    #[serde(default)]
    #[schema(required)]
    pub held_ns: u64,
}

/// One vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vcpu {
    /// Its index.
    #[schema(value_type = u32)]
    pub index: VcpuIndex,
    /// Its (x2)APIC id.
    #[schema(value_type = u32)]
    pub apic_id: ApicId,
    /// Id of its thread on the host; absent before it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tid: Option<i32>,
    /// What it is doing.
    pub state: VcpuState,
    /// Host CPUs that its thread may use, as the kernel says.
    #[schema(value_type = String, example = "0-3,8")]
    pub affinity: CpuSet<HostCpu>,
    /// The host CPU it was on last; absent before it ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub last_cpu: Option<HostCpu>,
    /// The host node of that CPU; absent before it ran.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub host_node: Option<HostNode>,
    /// Its NUMA node in the guest.
    #[schema(value_type = u32)]
    pub node: NodeId,
    /// How long it was in the run loop, in nanoseconds.
    pub run_loop_ns: u64,
    /// Where that time went.
    pub ledger_ns: Ledger,
    /// Exits to the monitor by kind; a kind that never happened is absent.
    pub exits: BTreeMap<String, u64>,
    /// What was done about its pause loops.
    pub pause: PauseCounters,
}

/// All vCPUs, in the order of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Vcpus {
    /// When this was seen: nanoseconds of the monotonic clock of the host. Two answers give rates.
    pub at_ns: u64,
    /// Changes of the machine so far.
    pub generation: Generation,
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
}

/// Body of `PATCH /vcpus/{index}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityChange {
    /// Host CPUs that the thread may use; not empty. Live placement leaves the vCPU alone from then on.
    #[schema(value_type = String, example = "0-3,8", pattern = "^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$")]
    pub affinity: CpuSet<HostCpu>,
}
