// SPDX-License-Identifier: Apache-2.0
//! Events as they come, out of a stream of server-sent events (HTML, section 9.2.6).

use std::io::{BufRead, BufReader, Read};

use super::{ClientError, Coming};
use crate::wire::Event;

/// Longest line: an event with the longest texts there are.
const LINE_BYTES: u64 = 64 * 1024;

/// The events of a stream, until it ends.
pub struct Events {
    reader: BufReader<Coming>,
}

impl Events {
    pub(super) fn new(coming: Coming) -> Self {
        Self { reader: BufReader::new(coming) }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Iterator for Events {
    type Item = Result<Event, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = String::new();
            match self.reader.by_ref().take(LINE_BYTES).read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(ClientError::Broken(error))),
            }
            // An event of ours is one line of data; id and name are in it too.
            if let Some(data) = line.strip_prefix("data: ") {
                let event = serde_json::from_str(data.trim_end());
                return Some(event.map_err(|error| ClientError::NotUnderstood { what: error.to_string() }));
            }
        }
    }
}
