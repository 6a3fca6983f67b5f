// SPDX-License-Identifier: Apache-2.0
//! What is only looked at: shape, host, sums, decisions, metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};

use super::answer::{Always, Missing, json, no_vm};
use super::extract::NoQuery;
use crate::input::query::Query;
use crate::metrics::{self, Format, Seen};
use crate::server::context::Shared;
use crate::wire::{Decisions, Host, Problem, Stats, Topology};

type Context = State<Arc<Shared>>;

/// Most decisions of one answer.
const MOST_DECISIONS: u64 = 4096;

/// What the guest is told of its shape.
#[utoipa::path(
    get, path = "/api/v1/topology", tag = "machine", operation_id = "getTopology",
    responses((status = 200, description = "The shape", body = Topology), Missing, Always)
)]
pub(super) async fn topology(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    shared.monitor.topology().map(|topology| json(&topology)).ok_or_else(no_vm)
}

/// The host.
#[utoipa::path(
    get, path = "/api/v1/host", tag = "machine", operation_id = "getHost",
    responses((status = 200, description = "The host", body = Host), Always)
)]
pub(super) async fn host(State(shared): Context, _: NoQuery) -> Response {
    json(&shared.monitor.host())
}

/// Sums over the machine, and what the monitor itself costs.
#[utoipa::path(
    get, path = "/api/v1/stats", tag = "machine", operation_id = "getStats",
    responses((status = 200, description = "The sums", body = Stats), Missing, Always)
)]
pub(super) async fn stats(State(shared): Context, _: NoQuery) -> Result<Response, Problem> {
    let stats = shared.monitor.vcpus().and_then(|seen| shared.monitor.stats_of(&seen.vcpus));
    let stats = stats.map(|stats| Stats { api: shared.stats(), ..stats });
    stats.map(|stats| json(&stats)).ok_or_else(no_vm)
}

/// The latest decisions about pause loops, and who yielded to whom.
#[utoipa::path(
    get, path = "/api/v1/decisions", tag = "machine", operation_id = "listDecisions",
    params(("limit" = Option<u64>, Query, minimum = 0, maximum = 4096, description = "Decisions at most; 100 if it is not given")),
    responses((status = 200, description = "The decisions, oldest first", body = Decisions), Missing, Always)
)]
pub(super) async fn decisions(State(shared): Context, uri: Uri) -> Result<Response, Problem> {
    let limit = Query::parse(uri.query(), &["limit"])?.number("limit", 100, 0, MOST_DECISIONS)?;
    // At most MOST_DECISIONS.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    shared.monitor.decisions(limit).map(|decisions| json(&decisions)).ok_or_else(no_vm)
}

/// Everything that is counted, as OpenMetrics text (docs/metrics.md), or as the older text of Prometheus for whoever accepts
/// `text/plain` and not OpenMetrics. Before a machine is created only what the API itself counts.
#[utoipa::path(
    get, path = "/metrics", tag = "metrics", operation_id = "getMetrics",
    responses((status = 200, description = "OpenMetrics", body = String, content_type = "application/openmetrics-text"), Always)
)]
pub(super) async fn metrics(State(shared): Context, headers: HeaderMap, _: NoQuery) -> Response {
    let monitor = &shared.monitor;
    let format = Format::of(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let vcpus = monitor.vcpus();
    // The sums are of the same look: to look is what costs most here.
    let stats = vcpus.as_ref().and_then(|seen| monitor.stats_of(&seen.vcpus));
    let seen = Seen { vm: monitor.vm(), vcpus, stats, api: shared.stats() };
    ([(header::CONTENT_TYPE, format.content_type())], metrics::write(seen, format)).into_response()
}
