// SPDX-License-Identifier: Apache-2.0
//! The server: a thread of its own that answers on a Unix socket, and on TCP if it was told a token.
//!
//! Nothing of it exists before [`Server::start`]. What cannot be had is an error there, before a client is served. Invariant:
//! the thread waits for clients and for nothing else; the monitor is asked for copies and tickets only.

mod accept;
pub(crate) mod context;
mod guard;
mod limits;
mod patient;
mod token;
mod unix;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::events::EventLog;
use crate::monitor::Monitor;
use crate::routes;
use crate::serial::SerialLog;
use context::Shared;
pub(crate) use guard::{Guard, check_page};
use unix::Socket;

pub use limits::Limits;
pub use token::{Token, TokenError};
pub use unix::SocketError;

/// How long clients may take to read the end of an answer when the server stops.
const FAREWELL: Duration = Duration::from_millis(200);
const STACK_BYTES: usize = 512 * 1024;

/// Where to serve.
#[derive(Clone, Debug, Default)]
pub struct Listen {
    /// A Unix socket at this path.
    pub socket: Option<PathBuf>,
    /// TCP at this address (port 0: any), for whoever has the token.
    pub tcp: Option<(SocketAddr, Token)>,
}

/// What is served.
#[derive(Clone)]
pub struct Served {
    /// The machine.
    pub monitor: Arc<dyn Monitor>,
    /// Its events.
    pub events: Arc<EventLog>,
    /// Its serial output.
    pub serial: Arc<SerialLog>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The Unix socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The TCP address.
    #[error("{address}: cannot be listened on: {source}; take another address or port")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The thread, or what it waits with.
    #[error("the API's thread cannot be started: {0}; free memory, processes or open files")]
    Thread(#[source] io::Error),
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    socket: Option<Socket>,
    tcp: Option<SocketAddr>,
}

impl Server {
    /// Starts to serve. On return clients can connect.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    pub fn start(listen: Listen, served: Served, limits: Limits) -> Result<Self, StartError> {
        let unix = listen.socket.as_deref().map(Socket::listen).transpose()?;
        let (socket, unix) = unix.unzip();
        let tcp =
            listen.tcp.map(|(address, token)| listen_tcp(address).map(|tcp| (tcp, Guard::new(token)))).transpose()?;
        let address = tcp.as_ref().and_then(|(tcp, _)| tcp.local_addr().ok());
        let shared = Arc::new(Shared::new(served.monitor, served.events, served.serial, limits));
        let (end, ended) = watch::channel(false);
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(StartError::Thread)?;
        let listeners = Listeners::register(&runtime, unix, tcp).map_err(StartError::Thread)?;
        let thread = thread::Builder::new()
            .name("api".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run(&runtime, listeners, &shared, ended))
            .map_err(StartError::Thread)?;
        Ok(Self { end, thread: Some(thread), socket, tcp: address })
    }

    /// The address that TCP is served at, if it is.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// The path of the Unix socket, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_ref().map(Socket::path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen_tcp(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| StartError::Tcp { address, source })
}

/// What is accepted from, known to the runtime.
struct Listeners {
    unix: Option<tokio::net::UnixListener>,
    tcp: Option<(tokio::net::TcpListener, Guard)>,
}

impl Listeners {
    fn register(runtime: &Runtime, unix: Option<UnixListener>, tcp: Option<(TcpListener, Guard)>) -> io::Result<Self> {
        let _inside = runtime.enter();
        Ok(Self {
            unix: unix.map(tokio::net::UnixListener::from_std).transpose()?,
            tcp: tcp
                .map(|(tcp, guard)| Ok::<_, io::Error>((tokio::net::TcpListener::from_std(tcp)?, guard)))
                .transpose()?,
        })
    }
}

fn run(runtime: &Runtime, listeners: Listeners, shared: &Arc<Shared>, mut ended: watch::Receiver<bool>) {
    runtime.block_on(async {
        if let Some(listener) = listeners.unix {
            let router = routes::router(Arc::clone(shared), None);
            tokio::spawn(accept::serve(listener, router, Arc::clone(shared), ended.clone()));
        }
        if let Some((listener, guard)) = listeners.tcp {
            let router = routes::router(Arc::clone(shared), Some(guard));
            tokio::spawn(accept::serve(listener, router, Arc::clone(shared), ended.clone()));
        }
        // An error is a sender that is gone, which is the end too.
        let _ = ended.changed().await;
        tokio::time::sleep(if shared.stats().connections == 0 { Duration::ZERO } else { FAREWELL }).await;
    });
}
