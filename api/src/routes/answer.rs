// SPDX-License-Identifier: Apache-2.0
//! How answers are written: JSON with an entity tag, problems with their status.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::IntoResponses;

use crate::monitor::Refusal;
use crate::wire::{Code, Generation, Problem};

/// JSON with status 200.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    // Maps with text keys, numbers and lists only: it cannot fail.
    let body = serde_json::to_vec(value).expect("invariant: wire types are JSON");
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// JSON with status 200 and the generation as its entity tag.
pub(super) fn tagged<T: Serialize>(value: &T, generation: Generation) -> Response {
    let mut response = json(value);
    response.headers_mut().insert(header::ETAG, tag(generation));
    response
}

pub(super) fn tag(generation: Generation) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{generation}\"")).expect("invariant: digits are a header value")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let mut response = json(&self);
        *response.status_mut() = status;
        let more = match self.code.status() {
            401 => Some((header::WWW_AUTHENTICATE, "Bearer")),
            429 | 503 => Some((header::RETRY_AFTER, "1")),
            // The rest of the body is not waited for.
            408 | 413 => Some((header::CONNECTION, "close")),
            _ => None,
        };
        if let Some((name, value)) = more {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::NoVm => no_vm(),
            Refusal::AlreadyExists => Self::new(Code::AlreadyExists, message).hint("start another vmm for another one"),
            Refusal::WrongState { .. } => {
                Self::new(Code::WrongState, message).hint("look at the state with GET /api/v1/vm")
            }
            Refusal::NotAtRunTime { hint, .. } => Self { hint, ..Self::new(Code::NotAtRunTime, message) },
            Refusal::Stale { .. } => {
                Self::new(Code::StaleGeneration, message).hint("read it again, and decide again whether to change it")
            }
            Refusal::NoSuchVcpu { .. } => Self::new(Code::NoSuchVcpu, message),
            Refusal::UnknownField { nearest, .. } => Self {
                hint: nearest.map(|nearest| format!("did you mean `{nearest}`?")),
                ..Self::new(Code::UnknownField, message)
            },
            Refusal::Invalid { hint, .. } => Self { hint, ..Self::new(Code::InvalidValue, message) },
            Refusal::HostRefused { what, cause, hint } => {
                Self { cause: Some(cause), hint, ..Self::new(Code::HostRefused, what) }
            }
            Refusal::Busy { .. } => Self::new(Code::Busy, message).hint("look at the state with GET /api/v1/vm"),
            Refusal::Ending => Self::new(Code::Ending, message),
        }
    }
}

/// There is no machine yet.
pub(super) fn no_vm() -> Problem {
    Problem::new(Code::NoVm, "there is no machine yet").hint("create one with PUT /api/v1/vm")
}

macro_rules! problems {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $status:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(IntoResponses)]
        #[expect(dead_code, reason = "describes answers and never holds one")]
        pub(super) enum $name {
            $(#[response(status = $status, description = $text)] $variant(Problem),)*
        }
    };
}

problems! {
    /// What every path but the page's can answer.
    Always {
        BadRequest = 400 "A parameter or header is not what it takes; or a foreign host or page",
        Unauthorized = 401 "Over TCP: the token is missing or wrong",
        Unavailable = 503 "Too many connections are open, the change was not made in time, or the host refused it",
    }
}
problems! {
    /// What the page's paths can answer.
    Open {
        BadRequest = 400 "A parameter or header is not what it takes; or a foreign host or page",
        Unavailable = 503 "Too many connections are open",
    }
}
problems! {
    /// Where a file is named.
    Absent {
        NotFound = 404 "There is no such file",
    }
}
problems! {
    /// Where a machine is needed.
    Missing {
        NotFound = 404 "There is no machine yet, or no such vCPU",
    }
}
problems! {
    /// Where a stream is asked for.
    Crowded {
        TooMany = 429 "As many streams as are allowed are open",
    }
}
problems! {
    /// Where a change depends on state and generation.
    Changing {
        Conflict = 409 "The machine's state does not allow it",
        Stale = 412 "The machine was changed since the generation that If-Match names",
    }
}
problems! {
    /// Where a machine is to be that was not.
    Creating {
        Conflict = 409 "There is a machine already",
        Stale = 412 "If-Match names a generation, and there is no machine yet",
    }
}
problems! {
    /// Where a body is read.
    Reading {
        Timeout = 408 "The body did not arrive in time",
        TooLarge = 413 "The body is too large",
        Media = 415 "The body is not announced as application/json",
        Unprocessable = 422 "The body has an unknown key, lacks one, or has a value that cannot be",
    }
}
