// SPDX-License-Identifier: Apache-2.0
//! What handlers are given of a request, checked: a body, a generation, no query.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::input;
use crate::input::query::Query;
use crate::monitor::{Change, Refusal};
use crate::server::context::Shared;
use crate::wire::{Code, Generation, Problem};

/// A body, read as one of the wire types.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !content_type.is_some_and(input::header::is_json) {
            return Err(Problem::new(Code::NotJson, "the body is not announced as JSON")
                .hint("send the header `Content-Type: application/json`"));
        }
        let most = shared.limits.body_bytes;
        let too_large = || Problem::new(Code::BodyTooLarge, format!("the body has more than {most} bytes"));
        let announced =
            request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if announced.is_some_and(|bytes: u64| bytes > most as u64) {
            return Err(too_large());
        }
        let read = Limited::new(request.into_body(), most).collect();
        let bytes = match timeout(shared.limits.body, read).await {
            Err(_) => return Err(Problem::new(Code::BodyTimeout, "the body did not arrive in time")),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(error)) => {
                return Err(Problem::new(Code::MalformedJson, "the body cannot be read").because(error.to_string()));
            }
            Ok(Ok(collected)) => collected.to_bytes(),
        };
        input::body(&bytes).map(Self)
    }
}

/// The generation of `If-Match`; none if the header is absent or allows any.
pub(super) struct Expected(pub(super) Option<Generation>);

impl<S: Sync> FromRequestParts<S> for Expected {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match one(&parts.headers, "if-match")? {
            None => Ok(Self(None)),
            Some(value) => input::header::if_match(value).map(Self),
        }
    }
}

/// The value of a header that may stand once.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let bad = |what: &str| Problem::new(Code::BadHeader, format!("header {name} {what}"));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| bad("is not ASCII")),
        (Some(_), Some(_)) => Err(bad("stands twice")),
    }
}

/// The part of a path that varies. One that is no UTF-8 names nothing.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Ok(Path(segment)) = Path::from_request_parts(parts, state).await else {
            return Err(nothing_at(parts.uri.path()));
        };
        Ok(Self(segment))
    }
}

/// There is nothing at this path.
pub(super) fn nothing_at(path: &str) -> Problem {
    let shown: String = path.chars().take(128).flat_map(char::escape_debug).collect();
    Problem::new(Code::NotFound, format!("there is nothing at `{shown}`")).hint("the paths are listed in /openapi.json")
}

/// A path that takes no query.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::parse(parts.uri.query(), &[]).map(|_| Self)
    }
}

/// Asks for a change and waits until it is made, but not for ever.
pub(super) async fn ask(shared: &Shared, change: Change, expected: Expected) -> Result<Generation, Problem> {
    let ticket = shared.monitor.ask(change, expected.0);
    match timeout(shared.limits.change, ticket).await {
        Ok(asked) => asked.map_err(Problem::from),
        Err(_) => Err(Refusal::Busy { what: "the change".to_owned() }.into()),
    }
}
