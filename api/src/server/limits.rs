// SPDX-License-Identifier: Apache-2.0
//! How much of everything clients may have.

use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// Limits of a server. Tests make them small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of a request, in bytes.
    pub body_bytes: usize,
    /// Connections at once, over all listeners. Those that come beyond are told so and closed.
    pub connections: usize,
    /// Streams of events and serial output at once.
    pub streams: usize,
    /// How long a connection may take to send the head of a request, idle time before it included.
    pub head: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a client may leave data unread that is ready for it.
    pub unread: Duration,
    /// How long a change may take until the client is told that it may still happen.
    pub change: Duration,
    /// Time between two signs of life on a stream of events.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 * 1024,
            connections: 1280,
            streams: 64,
            head: Duration::from_secs(60),
            body: Duration::from_secs(10),
            unread: Duration::from_secs(30),
            change: Duration::from_secs(10),
            heartbeat: Duration::from_secs(15),
        }
    }
}

impl Limits {
    /// The default ones, with connections taking at most half of the files that this process may open: the rest is the
    /// machine's.
    #[must_use]
    pub fn of_this_process() -> Self {
        let all = Self::default();
        let files = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
        Self { connections: files.map_or(all.connections, |files| all.connections.min(files / 2)), ..all }
    }
}
