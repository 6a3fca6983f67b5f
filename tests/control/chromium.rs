// SPDX-License-Identifier: Apache-2.0
//! Headless Chromium, told what to do in the DevTools protocol over two pipes: one JSON message, one zero byte.
//!
//! Invariant: every wait ends, and the browser never outlives its owner.

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::judges::in_path;

/// How long an answer may take that takes no time on a machine with nothing else to do.
const LONG: Duration = Duration::from_secs(60);

/// How long it may take to close before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// A running browser.
pub(crate) struct Chromium {
    child: Child,
    to: RefCell<ChildStdin>,
    from: Receiver<Value>,
    last_id: Cell<u64>,
    /// What was told without being asked for, oldest first.
    told: RefCell<Vec<Value>>,
    _profile: TempDir,
}

impl Chromium {
    fn program() -> Option<PathBuf> {
        in_path("chromium").or_else(|| in_path("chromium-browser"))
    }

    /// Why there is none here, if there is none.
    pub(crate) fn missing() -> Option<String> {
        Self::program().is_none().then(|| "chromium is not installed (Debian's package chromium)".to_owned())
    }

    pub(crate) fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The browser reads messages from file descriptor 3 and writes them to 4. A user that is not root needs no
        // `--no-sandbox`; in a container the sandbox cannot be had.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(Self::program().unwrap())
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-extensions", "--disable-background-networking", "--disable-component-update"])
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = RefCell::new(child.stdin.take().unwrap());
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (sender, from) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let mut message = Vec::new();
                // Ends with the browser.
                if reader.read_until(0, &mut message).unwrap_or(0) == 0 {
                    return;
                }
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, to, from, last_id: Cell::new(0), told: RefCell::default(), _profile: profile }
    }

    /// Calls a method, of a session if one is named, and gives its result.
    pub(crate) fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.borrow_mut().write_all(&bytes).unwrap();
        let deadline = Instant::now() + LONG;
        loop {
            let message = match self.from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer within {LONG:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: the browser has ended"),
            };
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.told.borrow_mut().push(message);
        }
    }

    /// What was told under one of these names since the start.
    pub(crate) fn told(&self, names: &[&str]) -> Vec<Value> {
        self.told.borrow_mut().extend(self.from.try_iter());
        let told = self.told.borrow();
        let named = told.iter().filter(|message| names.iter().any(|name| message["method"] == *name));
        named.map(|message| message["params"].clone()).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Asked to, it ends its own processes and leaves the profile alone before it goes.
        let _ = self.to.borrow_mut().write_all(b"{\"id\": 0, \"method\": \"Browser.close\"}\0");
        let deadline = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
