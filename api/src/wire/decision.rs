// SPDX-License-Identifier: Apache-2.0
//! `/decisions`: what was decided about pause events lately, and who yielded to whom.

use serde::{Deserialize, Serialize};
use topology::id::VcpuIndex;
use utoipa::ToSchema;

/// What a vCPU's thread did about a pause event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Favoured another vCPU.
    YieldTo,
    /// Blocked, bounded.
    Park,
    /// Went back into the guest: acting was found not to pay.
    Spin,
    /// Went back into the guest: there was nothing to do.
    Bail,
}

/// One decision (docs/pause-loops.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Decisions since the guest started, this one included.
    pub number: u64,
    /// Since the guest started, in nanoseconds.
    pub at_ns: u64,
    /// Who spun.
    #[schema(value_type = u32)]
    pub vcpu: VcpuIndex,
    /// Whom the guest named as the one to wait for; absent if it named none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub owner: Option<VcpuIndex>,
    /// What was done.
    pub act: Act,
    /// Whom it favoured; absent if nobody.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<u32>)]
    pub target: Option<VcpuIndex>,
    /// By which means: `yield`, `wake`, `wake_then_yield`, `wake_and_park`, `hypercall`; absent unless it yielded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub how: Option<String>,
    /// The rule by which the target was found; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<String>,
    /// Why it bailed out; absent unless it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What came of it: `boosted`, `not_boosted` or `nobody_waiting`; absent while it is not known, or nothing was done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
}

/// How often one vCPU yielded to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pair {
    /// Who yielded.
    #[schema(value_type = u32)]
    pub from: VcpuIndex,
    /// To whom.
    #[schema(value_type = u32)]
    pub to: VcpuIndex,
    /// How often.
    pub yields: u64,
}

/// The latest decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decisions {
    /// Decisions since the guest started.
    pub total: u64,
    /// The latest ones that were kept, oldest first.
    pub latest: Vec<Decision>,
    /// Yields since the guest started, by who and to whom; a pair without any is absent. Sorted. Of a vCPU that yields to more
    /// than 32 others only the frequent ones are kept.
    pub pairs: Vec<Pair>,
}
