// SPDX-License-Identifier: Apache-2.0
//! A machine of memory, served at an address with a token.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use api::fake::FakeMonitor;
use api::server::{Limits, Listen, Served, Server, Token};
use tempfile::TempDir;

/// What is typed into the page.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A file with the token in it.
pub(crate) fn token_file(directory: &Path) -> PathBuf {
    let path = directory.join("token");
    fs::write(&path, TOKEN).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// A machine of memory for which time passes as it passes here.
pub(crate) struct Memory {
    pub(crate) monitor: Arc<FakeMonitor>,
    server: Server,
    end: Arc<AtomicBool>,
    clock: Option<JoinHandle<()>>,
    _directory: TempDir,
}

impl Memory {
    pub(crate) fn serve(cpus: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::read(&token_file(directory.path())).unwrap();
        let listen = Listen { socket: None, tcp: Some((SocketAddr::from(([127, 0, 0, 1], 0)), token)) };
        let monitor = Arc::new(FakeMonitor::running(cpus));
        let served = Served { monitor: monitor.clone(), events: monitor.events(), serial: monitor.serial() };
        let server = Server::start(listen, served, Limits::default()).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let clock = thread::spawn({
            let (monitor, end) = (Arc::clone(&monitor), Arc::clone(&end));
            move || {
                const TICK: Duration = Duration::from_millis(50);
                while !end.load(Ordering::SeqCst) {
                    thread::sleep(TICK);
                    monitor.advance(u64::try_from(TICK.as_nanos()).unwrap());
                }
            }
        });
        Self { monitor, server, end, clock: Some(clock), _directory: directory }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.tcp().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        let _ = self.clock.take().unwrap().join();
    }
}
