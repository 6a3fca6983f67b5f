// SPDX-License-Identifier: Apache-2.0
//! From what a client sent to a checked value, or to the problem it is told of.
//!
//! Pure. Bytes become JSON ([`json`]: no key twice, no deep nesting), JSON becomes a type ([`typed`]: no key unknown, no `null`),
//! and a query becomes parameters ([`query`]). Invariant: whatever the bytes are, nothing here panics, and what it allocates
//! is in proportion to them.

pub mod header;
pub mod json;
mod nearest;
pub mod query;
pub mod typed;

use serde::de::DeserializeOwned;

use crate::wire::Problem;

pub use nearest::nearest;

/// Reads a body.
///
/// # Errors
/// The [`Problem`] that the client is told of: `malformed_json`, `unknown_field`, `missing_field` or `invalid_value`.
pub fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value = json::parse(bytes)?;
    typed::read(&value).map_err(Problem::from)
}
