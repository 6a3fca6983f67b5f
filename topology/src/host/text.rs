// SPDX-License-Identifier: Apache-2.0
//! Reading the small texts of sysfs, with errors that name the file.
//!
//! Invariant: the work is bounded by the length of the text and [`crate::cpu_set::MAX_ID`].

use std::str::FromStr;

use super::HostError;
use crate::cpu_set::CpuSet;
use crate::id::HostCpu;

/// At most 120 characters of a text, for a message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(120).collect()
}

/// A list of CPUs such as `0-3,8`.
pub(super) fn parse_list(path: &str, text: &str) -> Result<CpuSet<HostCpu>, HostError> {
    text.parse().map_err(|source| HostError::BadList { path: path.to_owned(), source })
}

/// A number; `wanted` says what it should be.
pub(super) fn parse_number<T: FromStr>(path: &str, text: &str, wanted: &'static str) -> Result<T, HostError> {
    text.trim().parse().map_err(|_| HostError::BadNumber { path: path.to_owned(), text: clip(text), wanted })
}
