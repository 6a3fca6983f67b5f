// SPDX-License-Identifier: Apache-2.0
//! `vmm replay FILE`: makes the decisions of a log again, and names the first that comes out differently.

use std::path::Path;

use super::{CommandError, output};
use crate::pause::replay_file;
use crate::report::ExitStatus;

/// Replays a log.
pub(super) fn run(log: &Path) -> Result<ExitStatus, CommandError> {
    let replayed = replay_file(log)?;
    match replayed.mismatch {
        None => output(&format!("{} decisions, all the same\n", replayed.decisions)),
        Some(mismatch) => {
            output(&format!(
                "decision {} at {}: {:?}\n  logged  {:?}\n  decided {:?}\n",
                mismatch.number, mismatch.now, mismatch.event, mismatch.logged, mismatch.decided
            ))?;
            Ok(ExitStatus::MonitorError)
        }
    }
}
