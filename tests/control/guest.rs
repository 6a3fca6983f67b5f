// SPDX-License-Identifier: Apache-2.0
//! A real guest and its monitor, served at an address with a token.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use api::client::{Client, Endpoint};
use tempfile::TempDir;

use crate::monitor;
use crate::served::{TOKEN, token_file};

/// A real guest that hands a lock around, and its monitor.
pub(crate) struct Guest {
    child: Child,
    url: String,
    _directory: TempDir,
}

impl Guest {
    pub(crate) fn start(cpus: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(monitor::path())
            .arg(format!("--cpus={cpus}"))
            // Longer than any test: its end is the test's.
            .args(["--pause=act", "--probe=ring seconds=300", "--api-listen=127.0.0.1:0", "--api-token-file"])
            .arg(token_file(directory.path()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let told = lines.find_map(|line| line.split_once("http://").map(|(_, rest)| format!("http://{rest}")));
        // Read on, or the monitor would wait for a reader.
        thread::spawn(move || lines.count());
        Self { child, url: told.expect("the monitor says where its API is"), _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn client(&self) -> Client {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        Client::new(Endpoint::Tcp { address, token: TOKEN.to_owned() })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
