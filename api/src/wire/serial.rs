// SPDX-License-Identifier: Apache-2.0
//! `/serial`: what is kept of the guest's serial output. The bytes themselves are no JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Which bytes of the guest's serial output are kept. Bytes are counted from the first one that the guest sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SerialInfo {
    /// The oldest byte that is kept.
    pub from: u64,
    /// The byte that comes next: as many as the guest has sent.
    pub next: u64,
}
