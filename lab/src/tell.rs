// SPDX-License-Identifier: Apache-2.0
//! What is told on standard error meanwhile: a reader that went away must not end the lab half-way.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line, if it can be written.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
