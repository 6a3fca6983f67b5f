// SPDX-License-Identifier: Apache-2.0
//! The monitor's side of the probe guest's lines: text of a guest, which may be hostile, to [`Record`]s.
//!
//! Works on bytes as they come out of the serial port. Invariant: no input panics, and nothing grows with the input: a
//! line longer than [`LINE_MAX`] or with more than [`FIELDS_MAX`] fields is an error, not an allocation.

use thiserror::Error;

use crate::record::{PREFIX, Record};
use crate::value::Word;

/// Longest line that is looked at, without its line feed.
pub const LINE_MAX: usize = 512;
/// Most fields of a line.
pub const FIELDS_MAX: usize = 32;

/// Why a line that begins with the prefix is not a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Longer than any line of the probe guest.
    #[error("a line of {len} bytes is longer than {LINE_MAX}: not a line of the probe guest")]
    TooLong {
        /// Its length, in bytes.
        len: usize,
    },
    /// Not ASCII text.
    #[error("byte {position} is not printable ASCII: not a line of the probe guest")]
    NotText {
        /// The first such byte.
        position: usize,
    },
    /// The word after the prefix is missing or unknown.
    #[error("the record kind `{kind}` is unknown: a newer probe guest than this monitor")]
    UnknownKind {
        /// The word.
        kind: Word,
    },
    /// A word without `=`, a key given twice, or too many of them.
    #[error("the field `{field}` is not key=value, comes twice, or is one of more than {FIELDS_MAX}")]
    BadField {
        /// The word.
        field: Word,
    },
    /// A field that the kind has is not there.
    #[error("the field `{key}` is missing: an older probe guest than this monitor")]
    MissingField {
        /// Its key.
        key: &'static str,
    },
    /// A field's value cannot be read.
    #[error("`{value}` is not a value of the field `{key}`")]
    BadValue {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: Word,
    },
}

/// Parses one line of a guest's serial output, without its line feed (a carriage return before it is taken off).
///
/// `None` for a line that is not the probe's: anything that does not begin with the prefix and a space. Fields this
/// version does not know are skipped, as newer guests may add some.
///
/// # Errors
/// One variant per way to be wrong, see [`ParseError`].
pub fn parse_line(line: &[u8]) -> Option<Result<Record, ParseError>> {
    let rest = line.strip_prefix(PREFIX.as_bytes())?.strip_prefix(b" ")?;
    Some(parse_record(line, rest.strip_suffix(b"\r").unwrap_or(rest)))
}

fn parse_record(line: &[u8], rest: &[u8]) -> Result<Record, ParseError> {
    if line.len() > LINE_MAX {
        return Err(ParseError::TooLong { len: line.len() });
    }
    if let Some(at) = rest.iter().position(|b| !(b' '..=b'~').contains(b)) {
        return Err(ParseError::NotText { position: PREFIX.len() + 1 + at });
    }
    let text = str::from_utf8(rest).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let kind = words.next().unwrap_or_default();
    let mut fields = Fields { entries: [("", ""); FIELDS_MAX], len: 0 };
    for word in words {
        fields.push(word).ok_or_else(|| ParseError::BadField { field: Word::new(word.as_bytes()) })?;
    }
    let record = Record::collect(kind, |key| fields.get(key))
        .ok_or_else(|| ParseError::UnknownKind { kind: Word::new(kind.as_bytes()) })?;
    record.map_err(|(key, value)| match value {
        None => ParseError::MissingField { key },
        Some(value) => ParseError::BadValue { key, value: Word::new(value.as_bytes()) },
    })
}

struct Fields<'a> {
    entries: [(&'a str, &'a str); FIELDS_MAX],
    len: usize,
}

impl<'a> Fields<'a> {
    fn push(&mut self, word: &'a str) -> Option<()> {
        let (key, value) = word.split_once('=').filter(|(key, _)| !key.is_empty())?;
        if self.get(key).is_some() {
            return None;
        }
        *self.entries.get_mut(self.len)? = (key, value);
        self.len += 1;
        Some(())
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.entries[..self.len].iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests;
