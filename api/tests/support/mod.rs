// SPDX-License-Identifier: Apache-2.0
//! A server in front of a machine that is only memory, and what is sent to it.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod document;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::client::{Answer, Client, Endpoint};
use api::fake::FakeMonitor;
use api::server::{Limits, Listen, Served, Server, Token};
use serde_json::Value;
use tempfile::TempDir;

/// The token of every server here.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// How long something may take that takes no time on a machine with nothing else to do.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server, and the machine behind it.
pub(crate) struct Bench {
    pub(crate) monitor: Arc<FakeMonitor>,
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
}

impl Bench {
    /// A machine of four vCPUs that has run for a while.
    pub(crate) fn running() -> Self {
        let monitor = FakeMonitor::running(4);
        monitor.advance(2_345_678_901);
        Self::of(monitor, Limits::default())
    }

    pub(crate) fn of(monitor: FakeMonitor, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listen =
            Listen { socket: Some(directory.path().join("api.sock")), tcp: Some((any, Token::read(&token).unwrap())) };
        let monitor = Arc::new(monitor);
        let served = Served { monitor: monitor.clone(), events: monitor.events(), serial: monitor.serial() };
        let server = Server::start(listen, served, limits).unwrap();
        Self { monitor, server, directory }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.server.socket().unwrap().to_owned()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(Endpoint::Unix(self.socket())).patient(LONG)
    }

    pub(crate) fn over_tcp(&self, token: &str) -> Client {
        let endpoint = Endpoint::Tcp { address: self.server.tcp().unwrap(), token: token.to_owned() };
        Client::new(endpoint).patient(LONG)
    }

    /// A connection on which nothing was sent.
    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends bytes as they are and reads until the server closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        judged("GET", path, self.client().send("GET", path, &[], None).unwrap())
    }

    /// Sends JSON.
    #[track_caller]
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = [&[("content-type", "application/json")], headers].concat();
        judged(method, path, self.client().send(method, path, &headers, Some(body.as_bytes())).unwrap())
    }

    /// Whether the machine is still served.
    pub(crate) fn is_well(&self) {
        let answer = self.get("/api/v1/vm");
        assert_eq!(answer.head.status, 200);
        assert_eq!(json(&answer)["cpus"], 4);
    }
}

/// An answer that is documented, if its path is.
#[track_caller]
fn judged(method: &str, path: &str, answer: Answer) -> Answer {
    let document = document::Document::read();
    let complaint = document.route(method, path).and_then(|route| document.complaint(&route, &answer));
    assert_eq!(complaint, None);
    answer
}

pub(crate) fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| {
        panic!("{error}: status {} {:?}", answer.head.status, String::from_utf8_lossy(&answer.body))
    })
}

/// The code of an answer that is an error.
pub(crate) fn code(answer: &Answer) -> String {
    json(answer)["code"].as_str().unwrap().to_owned()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
