// SPDX-License-Identifier: Apache-2.0
//! `/vm`: look at the machine, create it, bring it to a state, press its buttons.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Always, Changing, Creating, Missing, Reading, no_vm, tagged};
use super::extract::{Body, Expected, NoQuery, ask};
use crate::monitor::Change;
use crate::server::context::Shared;
use crate::wire::{Configuration, Problem, StateChange, Vm};

type Context = State<Arc<Shared>>;

/// The machine.
#[utoipa::path(
    get, path = "/api/v1/vm", tag = "vm", operation_id = "getVm",
    responses(
        (status = 200, description = "The machine", body = Vm, headers(("ETag" = String, description = "Its generation"))),
        Missing, Always
    )
)]
pub(super) async fn get_vm(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.vm().map(|vm| tagged(&vm, vm.generation)).ok_or_else(no_vm)
}

/// Create the machine, where vmm was started with --api-only. It is `created` then, and runs when its state is changed.
#[utoipa::path(
    put, path = "/api/v1/vm", tag = "vm", operation_id = "createVm", request_body = Configuration,
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses(
        (status = 201, description = "The machine that was created", body = Vm,
         headers(("ETag" = String, description = "Its generation"), ("Location" = String, description = "Its path"))),
        Creating, Reading, Always
    )
)]
pub(super) async fn create_vm(
    State(shared): Context,
    _: NoQuery,
    expected: Expected,
    Body(configuration): Body<Configuration>,
) -> Result<Response, Problem> {
    ask(&shared, Change::Create(configuration), expected).await?;
    let vm = shared.monitor.vm().ok_or_else(no_vm)?;
    let mut response = tagged(&vm, vm.generation);
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/api/v1/vm"));
    Ok(response)
}

/// Bring the machine to a state: `running` starts or resumes it, `paused` holds it, `stopped` ends it. Where it is there
/// already, nothing happens.
#[utoipa::path(
    put, path = "/api/v1/vm/state", tag = "vm", operation_id = "changeState", request_body = StateChange,
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses(
        (status = 200, description = "The machine in that state", body = Vm,
         headers(("ETag" = String, description = "Its generation"))),
        Missing, Changing, Reading, Always
    )
)]
pub(super) async fn change_state(
    State(shared): Context,
    _: NoQuery,
    expected: Expected,
    Body(change): Body<StateChange>,
) -> Result<Response, Problem> {
    ask(&shared, Change::State(change.state), expected).await?;
    shared.monitor.vm().map(|vm| tagged(&vm, vm.generation)).ok_or_else(no_vm)
}

/// Press the power button. The guest decides what it does about it, and when.
#[utoipa::path(
    post, path = "/api/v1/vm/power-button", tag = "vm", operation_id = "pressPowerButton",
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses((status = 204, description = "The button was pressed"), Missing, Changing, Always)
)]
pub(super) async fn power_button(State(shared): Context, _: NoQuery, expected: Expected) -> Result<Response, Problem> {
    press(&shared, Change::PowerButton, expected).await
}

/// Reset the guest, as its reset button would: a machine of the same configuration begins anew.
#[utoipa::path(
    post, path = "/api/v1/vm/reset", tag = "vm", operation_id = "resetVm",
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses((status = 204, description = "The guest was reset"), Missing, Changing, Always)
)]
pub(super) async fn reset(State(shared): Context, _: NoQuery, expected: Expected) -> Result<Response, Problem> {
    press(&shared, Change::Reset, expected).await
}

/// Send a non-maskable interrupt to every vCPU.
#[utoipa::path(
    post, path = "/api/v1/vm/nmi", tag = "vm", operation_id = "sendNmi",
    params(("If-Match" = Option<String>, Header, pattern = r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#, description = "Only if the machine has this generation")),
    responses((status = 204, description = "The interrupt was sent"), Missing, Changing, Always)
)]
pub(super) async fn nmi(State(shared): Context, _: NoQuery, expected: Expected) -> Result<Response, Problem> {
    press(&shared, Change::Nmi, expected).await
}

async fn press(shared: &Shared, change: Change, expected: Expected) -> Result<Response, Problem> {
    ask(shared, change, expected).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
