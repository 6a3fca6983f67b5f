// SPDX-License-Identifier: Apache-2.0
//! What a driver decides by, as it stands: under the driver's lock, so that a change is there for the next decision.
//!
//! Invariant: one set of rules holds for the whole of a decision.

use std::sync::Arc;

use policy::pause::PauseConfig;

use super::deed::FixedBounds;
use super::source::{PauseSource, decides};
use crate::config::{MechanismChoice, PauseMode, PausePlan};

/// What decisions depend on beside the event and the view.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) mode: PauseMode,
    /// The mechanism that is always used, or `Auto` for the policy's choice.
    pub(super) mechanism: MechanismChoice,
    /// Parameters, with the mechanisms that the host grants.
    pub(super) config: PauseConfig,
    pub(super) bounds: FixedBounds,
}

impl Rules {
    pub(super) fn new(plan: &PausePlan, config: PauseConfig, vcpus: usize) -> Self {
        Self { mode: plan.mode, mechanism: plan.mechanism, config, bounds: FixedBounds::new(&config, vcpus) }
    }

    /// Whether decisions depend on what is seen of the runqueues.
    pub(super) fn look(&self, vcpus: usize) -> bool {
        decides(self.mode) && self.mechanism == MechanismChoice::Auto && vcpus > 1
    }
}

/// The sources that hold, for the vCPUs' threads.
#[derive(Clone, Default)]
pub(super) struct Attached {
    pub(super) plan: PausePlan,
    pub(super) sources: Vec<Arc<dyn PauseSource>>,
}
