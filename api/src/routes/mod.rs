// SPDX-License-Identifier: Apache-2.0
//! What stands at which path: one function a method of a path, one file a subject.
//!
//! Before any of them a request is looked at by [`outer`]: who sends it, and whether there is a token where none belongs.
//! Invariant: every answer with a status of 400 and above that is made here has a [`Problem`] as its body.

mod answer;
mod document;
mod extract;
mod machine;
pub(crate) mod page;
mod settings;
mod streams;
mod vcpus;
mod vm;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post, put};

use crate::input::query::Query;
use crate::server::context::Shared;
use crate::server::{Guard, check_page};
use crate::wire::{Code, Problem};
use extract::nothing_at;

/// All paths, for requests that `guard` lets through; none for a Unix socket, whose permissions are the guard: there
/// only foreign pages are looked for.
pub(crate) fn router(shared: Arc<Shared>, guard: Option<Guard>) -> Router {
    let resources = Router::new()
        .route("/vm", get(vm::get_vm).put(vm::create_vm))
        .route("/vm/state", put(vm::change_state))
        .route("/vm/power-button", post(vm::power_button))
        .route("/vm/reset", post(vm::reset))
        .route("/vm/nmi", post(vm::nmi))
        .route("/vcpus", get(vcpus::list))
        .route("/vcpus/{index}", get(vcpus::one).patch(vcpus::change))
        .route("/topology", get(machine::topology))
        .route("/host", get(machine::host))
        .route("/stats", get(machine::stats))
        .route("/decisions", get(machine::decisions))
        .route("/placement", get(settings::placement).merge(patch(settings::change_placement)))
        .route("/pause", get(settings::pause).merge(patch(settings::change_pause)))
        .route("/thresholds", get(settings::thresholds).merge(patch(settings::change_thresholds)))
        .route("/serial", get(streams::serial_history))
        .route("/serial/stream", get(streams::serial_stream));
    let everywhere = || {
        Router::new()
            .route("/events", get(streams::events))
            .route("/metrics", get(machine::metrics))
            .route("/openapi.json", get(document::openapi))
    };
    let page = if guard.is_some() { get(page::page_with_token) } else { get(page::page) };
    let state = (Arc::clone(&shared), guard);
    Router::new()
        .nest("/api/v1", resources.merge(everywhere()))
        .merge(everywhere())
        .route("/", page)
        .route("/page/{file}", get(page::page_file))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(state, outer))
        .with_state(shared)
}

/// Looks at a request before its route does, and at the answer behind it.
async fn outer(State((shared, guard)): State<(Arc<Shared>, Option<Guard>)>, request: Request, next: Next) -> Response {
    let mut response = match look(request.uri(), &request, guard.as_ref()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    shared.answered(response.status().as_u16());
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn look(uri: &Uri, request: &Request, guard: Option<&Guard>) -> Result<(), Problem> {
    match guard {
        Some(guard) => guard.check(uri, request.headers())?,
        None => check_page(uri, request.headers())?,
    }
    // Which parameters a path takes is the route's to say; here only tokens are looked for.
    match Query::parse(uri.query(), &[]) {
        Err(problem) if problem.code == Code::TokenInQuery => Err(problem),
        _ => Ok(()),
    }
}

async fn not_found(uri: Uri) -> Problem {
    nothing_at(uri.path())
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(128).flat_map(char::escape_debug).collect();
    let method: String = method.as_str().chars().take(32).collect();
    Problem::new(Code::MethodNotAllowed, format!("`{path}` does not take {method}"))
        .hint("the header Allow has the methods it takes")
}
