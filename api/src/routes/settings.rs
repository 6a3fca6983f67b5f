// SPDX-License-Identifier: Apache-2.0
//! `/placement`, `/pause` and `/thresholds`: what is decided how and told when, and what of that can be changed while the
//! guest runs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::answer::{Always, Changing, Missing, Reading, no_vm, tagged};
use super::extract::{Body, Expected, NoQuery, ask};
use crate::monitor::Change;
use crate::server::context::Shared;
use crate::wire::{Pause, PauseChange, Placement, PlacementChange, Problem, Thresholds, ThresholdsChange};

type Context = State<Arc<Shared>>;

/// Where the machine is, and why.
#[utoipa::path(
    get, path = "/api/v1/placement", tag = "placement", operation_id = "getPlacement",
    responses(
        (status = 200, description = "The placement", body = Placement,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Always
    )
)]
pub(super) async fn placement(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.placement().map(|placement| tagged(&placement, placement.generation)).ok_or_else(no_vm)
}

/// Change how it is decided where vCPU threads run.
#[utoipa::path(
    patch, path = "/api/v1/placement", tag = "placement", operation_id = "changePlacement",
    request_body = PlacementChange,
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses(
        (status = 200, description = "The placement as it is now", body = Placement,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Changing, Reading, Always
    )
)]
pub(super) async fn change_placement(
    State(shared): Context,
    _: NoQuery,
    expected: Expected,
    Body(change): Body<PlacementChange>,
) -> Result<Response, Problem> {
    ask(&shared, Change::Placement(change), expected).await?;
    shared.monitor.placement().map(|placement| tagged(&placement, placement.generation)).ok_or_else(no_vm)
}

/// What is done about pause loops: asked for, granted, and why.
#[utoipa::path(
    get, path = "/api/v1/pause", tag = "pause", operation_id = "getPause",
    responses(
        (status = 200, description = "The pause handling", body = Pause,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Always
    )
)]
pub(super) async fn pause(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.pause().map(|pause| tagged(&pause, pause.generation)).ok_or_else(no_vm)
}

/// Change what is done about pause loops.
#[utoipa::path(
    patch, path = "/api/v1/pause", tag = "pause", operation_id = "changePause", request_body = PauseChange,
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses(
        (status = 200, description = "The pause handling as it is now", body = Pause,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Changing, Reading, Always
    )
)]
pub(super) async fn change_pause(
    State(shared): Context,
    _: NoQuery,
    expected: Expected,
    Body(change): Body<PauseChange>,
) -> Result<Response, Problem> {
    ask(&shared, Change::Pause(change), expected).await?;
    shared.monitor.pause().map(|pause| tagged(&pause, pause.generation)).ok_or_else(no_vm)
}

/// From which numbers on events tell of pressure and of stolen time.
#[utoipa::path(
    get, path = "/api/v1/thresholds", tag = "events", operation_id = "getThresholds",
    responses(
        (status = 200, description = "The thresholds", body = Thresholds,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Always
    )
)]
pub(super) async fn thresholds(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.thresholds().map(|thresholds| tagged(&thresholds, thresholds.generation)).ok_or_else(no_vm)
}

/// Change from which numbers on events tell of pressure and of stolen time.
#[utoipa::path(
    patch, path = "/api/v1/thresholds", tag = "events", operation_id = "changeThresholds",
    request_body = ThresholdsChange,
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses(
        (status = 200, description = "The thresholds as they are now", body = Thresholds,
         headers(("ETag" = String, description = "The machine's generation"))),
        Missing, Changing, Reading, Always
    )
)]
pub(super) async fn change_thresholds(
    State(shared): Context,
    _: NoQuery,
    expected: Expected,
    Body(change): Body<ThresholdsChange>,
) -> Result<Response, Problem> {
    ask(&shared, Change::Thresholds(change), expected).await?;
    shared.monitor.thresholds().map(|thresholds| tagged(&thresholds, thresholds.generation)).ok_or_else(no_vm)
}
