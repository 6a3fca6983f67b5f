// SPDX-License-Identifier: Apache-2.0
//! From a listener to answered requests.
//!
//! Invariant: neither a client nor a lack of file descriptors ends the loop, and it never spins.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::context::Shared;
use super::patient::Patient;
use crate::wire::{Code, Problem};

/// Pause after an error such as "too many open files": the connection stays in the backlog.
const AFTER_ERROR: Duration = Duration::from_millis(50);
/// How long a client that is turned away may take to read why.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;

/// Something that connections come from.
pub(super) trait Listener: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

impl Listener for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        let (stream, _) = self.accept().await?;
        // Answers are small and asked for one by one.
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }
}

/// Accepts until `end` is told.
pub(super) async fn serve<L: Listener>(
    listener: L,
    router: Router,
    shared: Arc<Shared>,
    mut end: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.next() => accepted,
            _ = end.changed() => return,
        };
        let Ok(stream) = accepted else {
            sleep(AFTER_ERROR).await;
            continue;
        };
        let stream = Patient::new(stream, shared.limits.unread);
        match shared.connection() {
            Some(held) => {
                let served = connection(stream, router.clone(), Arc::clone(&shared), end.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(held);
                });
            }
            None => _ = tokio::spawn(timeout(FAREWELL, turn_away(stream))),
        }
    }
}

async fn connection<S>(stream: S, router: Router, shared: Arc<Shared>, mut end: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(shared.limits.head).max_buf_size(HEAD_BYTES);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    // An error is a client's own: gone, slow, or no HTTP, which hyper has answered.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = end.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Tells a client that there are too many, without reading what it wants.
async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let problem = Problem::new(Code::TooManyConnections, "as many connections as are allowed are open")
        .hint("close some, or try again later");
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: \
         1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // What was sent must be read, or the close resets the connection before the answer is seen.
    tokio::io::copy(&mut tokio::io::AsyncReadExt::take(&mut stream, 1 << 16), &mut tokio::io::sink()).await?;
    Ok(())
}
