// SPDX-License-Identifier: Apache-2.0
//! The body of every answer that is an error.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $status:literal,)*) => {
        /// What is wrong, for programs. A code keeps its meaning; each belongs to one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As it is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The HTTP status it comes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON, nests too deeply, or has a key twice.
    MalformedJson = "malformed_json" 400,
    /// A parameter of the query is unknown, or its value is not what it takes.
    BadQuery = "bad_query" 400,
    /// A header is not what it takes.
    BadHeader = "bad_header" 400,
    /// A token stands in the query, where logs and histories keep it. It belongs into the header `Authorization`.
    TokenInQuery = "token_in_query" 400,
    /// The header `Host` names another machine: a name was bound to this address.
    ForeignHost = "foreign_host" 400,
    /// The header `Origin` names another page.
    ForeignOrigin = "foreign_origin" 400,
    /// The token is missing or wrong.
    Unauthorized = "unauthorized" 401,
    /// There is nothing at this path.
    NotFound = "not_found" 404,
    /// No machine has been created yet.
    NoVm = "no_vm" 404,
    /// The machine has no such vCPU.
    NoSuchVcpu = "no_such_vcpu" 404,
    /// The path does not take this method; the header `Allow` has those it takes.
    MethodNotAllowed = "method_not_allowed" 405,
    /// The body did not arrive in time.
    BodyTimeout = "body_timeout" 408,
    /// The machine's state does not allow it.
    WrongState = "wrong_state" 409,
    /// There is a machine already.
    AlreadyExists = "already_exists" 409,
    /// It cannot be changed while this machine exists.
    NotAtRunTime = "not_at_run_time" 409,
    /// The machine was changed since the generation that `If-Match` names.
    StaleGeneration = "stale_generation" 412,
    /// The body is too large.
    BodyTooLarge = "body_too_large" 413,
    /// The body is not announced as `application/json`.
    NotJson = "not_json" 415,
    /// The body has a key that does not exist.
    UnknownField = "unknown_field" 422,
    /// The body lacks a key.
    MissingField = "missing_field" 422,
    /// A value is of the wrong kind, out of its range, or contradicts another.
    InvalidValue = "invalid_value" 422,
    /// As many streams as are allowed are open.
    TooManyStreams = "too_many_streams" 429,
    /// As many connections as are allowed are open.
    TooManyConnections = "too_many_connections" 503,
    /// The machine did not do it in time; it may still do it.
    Busy = "busy" 503,
    /// The host refused something that is needed for it.
    HostRefused = "host_refused" 503,
    /// The monitor is about to end.
    Ending = "ending" 503,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wrong, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What is wrong, for programs.
    pub code: Code,
    /// What is wrong, for people: the thing and its value.
    pub message: String,
    /// Why; absent if the message says it all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
    /// What to do next; absent if nothing helps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a cause and a hint.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), cause: None, hint: None }
    }

    /// The same, with a cause.
    #[must_use]
    pub fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// The same, with a next step.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
