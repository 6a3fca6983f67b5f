// SPDX-License-Identifier: Apache-2.0
//! The other end: a small blocking client, for `vmm ctl`, `vmm top` and tests.
//!
//! One connection a request, over the Unix socket or over TCP with a token. Invariant: a server that answers slowly, wrongly or
//! not at all costs a bounded time and a bounded amount of memory.

mod events;
mod message;

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::Problem;

pub use events::Events;
pub use message::{Body, Head};

/// Most bytes of an answer that is read as a whole: more than a thousand vCPUs take.
const MOST_BYTES: u64 = 64 << 20;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Behind a Unix socket.
    Unix(PathBuf),
    /// At an address, for whoever has the token.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The token.
        token: String,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody serves there.
    #[error("{endpoint}: cannot be reached: {source}; is a vmm with --api-sock or --api-listen running?")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The connection broke, or took too long.
    #[error("the connection broke: {0}; ask again")]
    Broken(#[source] io::Error),
    /// What came is no HTTP, or not what this client knows.
    #[error("the server's answer is not understood: {what}; do client and server have the same version?")]
    NotUnderstood {
        /// What is wrong with it.
        what: String,
    },
    /// The server refused.
    #[error("{}", told(.status, .problem))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the server says of it.
        problem: Problem,
    },
}

fn told(status: &u16, problem: &Problem) -> String {
    let cause = problem.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let hint = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{}{cause}{hint} ({} {status})", problem.message, problem.code)
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp { address, .. } => address.fmt(f),
        }
    }
}

/// An answer, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status and headers.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Connection {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Connection {
    fn be_patient(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience)),
            Self::Tcp(stream) => stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience)),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tcp(stream) => stream.flush(),
        }
    }
}

/// A body that is still coming.
pub type Coming = Body<BufReader<Connection>>;

/// Sends requests.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    patience: Duration,
}

impl Client {
    /// A client that waits for each step of a server's answer for at most 15 s.
    #[must_use]
    pub const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, patience: Duration::from_secs(15) }
    }

    /// The same client, waiting at most `patience`.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends a request and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// [`ClientError`], but never [`ClientError::Refused`].
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<Answer, ClientError> {
        let (head, coming) = self.exchange((method, path), headers, body)?;
        let mut body = Vec::new();
        coming.take(MOST_BYTES).read_to_end(&mut body).map_err(ClientError::Broken)?;
        Ok(Answer { head, body })
    }

    /// Sends a request and gives the answer's head and its body as it comes. Waits for the body without an end: a stream may
    /// have nothing to say for a while.
    ///
    /// # Errors
    /// [`ClientError`], but never [`ClientError::Refused`].
    pub fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<(Head, Coming), ClientError> {
        let (head, coming) = self.exchange((method, path), headers, body)?;
        coming.inner().get_ref().be_patient(None).map_err(ClientError::Broken)?;
        Ok((head, coming))
    }

    /// Sends a request, and reads the head of the answer.
    fn exchange(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<(Head, Coming), ClientError> {
        let mut stream = self.connect()?;
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "connection: close".to_owned()];
        match &self.endpoint {
            Endpoint::Unix(_) => lines.push("host: localhost".to_owned()),
            Endpoint::Tcp { address, token } => {
                lines.extend([format!("host: {address}"), format!("authorization: Bearer {token}")]);
            }
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.extend(body.map(|body| format!("content-length: {}", body.len())));
        let head = lines.join("\r\n") + "\r\n\r\n";
        // A server may answer before it has read all, and close: then the answer is there to be read.
        let sent = stream.write_all(&[head.as_bytes(), body.unwrap_or_default()].concat());
        let mut reader = BufReader::new(stream);
        match (Head::read(&mut reader), sent) {
            (Ok(head), _) => Ok((head.clone(), Body::new(reader, &head))),
            (Err(_), Err(error)) => Err(ClientError::Broken(error)),
            (Err(error), Ok(())) => Err(error),
        }
    }

    fn connect(&self) -> Result<Connection, ClientError> {
        let connect = || {
            let connection = match &self.endpoint {
                Endpoint::Unix(path) => Connection::Unix(UnixStream::connect(path)?),
                Endpoint::Tcp { address, .. } => Connection::Tcp(TcpStream::connect_timeout(address, self.patience)?),
            };
            connection.be_patient(Some(self.patience))?;
            Ok(connection)
        };
        connect().map_err(|source| ClientError::Unreachable { endpoint: self.endpoint.to_string(), source })
    }

    /// Reads one of the wire types.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        read(&accepted(self.send("GET", path, &[], None)?)?)
    }

    /// Asks for a change: `method` is PUT, PATCH or POST. The answer is empty where there is nothing to tell.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn change<T: Serialize>(
        &self,
        method: &str,
        path: &str,
        body: Option<&T>,
        generation: Option<crate::wire::Generation>,
    ) -> Result<Answer, ClientError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| ClientError::NotUnderstood { what: error.to_string() })?;
        let tag = generation.map(|generation| format!("\"{generation}\""));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(tag.as_deref().map(|tag| ("if-match", tag)));
        accepted(self.send(method, path, &headers, body.as_deref())?)
    }

    /// Follows the events behind the one with id `after`; none starts with what happens from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, after: Option<u64>) -> Result<Events, ClientError> {
        let query = after.map(|after| format!("?after={after}")).unwrap_or_default();
        let (head, coming) = self.open("GET", &format!("/api/v1/events{query}"), &[], None)?;
        if head.status != 200 {
            let mut body = Vec::new();
            coming.take(MOST_BYTES).read_to_end(&mut body).map_err(ClientError::Broken)?;
            accepted(Answer { head, body })?;
            return Err(ClientError::NotUnderstood { what: "events with another status than 200".to_owned() });
        }
        Ok(Events::new(coming))
    }
}

/// Reads a body as one of the wire types.
///
/// # Errors
/// [`ClientError::NotUnderstood`].
pub fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, ClientError> {
    serde_json::from_slice(&answer.body).map_err(|error| ClientError::NotUnderstood { what: error.to_string() })
}

/// An answer with a status below 400, or the problem it tells of.
fn accepted(answer: Answer) -> Result<Answer, ClientError> {
    let status = answer.head.status;
    if status < 400 {
        return Ok(answer);
    }
    match read(&answer) {
        Ok(problem) => Err(ClientError::Refused { status, problem }),
        Err(_) => Err(ClientError::NotUnderstood { what: format!("status {status} without a problem") }),
    }
}
