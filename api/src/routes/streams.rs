// SPDX-License-Identifier: Apache-2.0
//! What goes on while a client listens: events as server-sent events, serial output as its bytes.
//!
//! A stream is a task of its own that reads a log at the client's pace; between the two are a few chunks. Invariant: a client
//! that reads slowly or not at all delays nobody, and what it misses is announced.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Polling, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer::{Always, Crowded};
use super::extract::one;
use crate::input::header::last_event_id;
use crate::input::query::Query;
use crate::server::context::{Held, Shared};
use crate::wire::{Code, Event, Problem};

type Context = State<Arc<Shared>>;

/// Chunks between a stream's task and its connection.
const CHUNKS: usize = 4;
/// Events of one chunk at most.
const EVENTS: usize = 64;
/// Serial bytes of one chunk at most.
const BYTES: usize = 16 * 1024;
/// Greatest number of an event or a byte that is taken: JSON documents know no greater integer (`int64`).
const MOST: u64 = i64::MAX.unsigned_abs();
/// Header with the number of the first byte of an answer.
const SERIAL_FROM: &str = "serial-from";
/// Header with the number of the byte behind an answer.
const SERIAL_NEXT: &str = "serial-next";

/// The body of a stream: what its task sends, until the task ends.
struct Chunks(mpsc::Receiver<Bytes>);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        polling: &mut Polling<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(polling).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn permit(shared: &Shared) -> Result<Held, Problem> {
    let problem = || {
        Problem::new(
            Code::TooManyStreams,
            format!("{} streams are open, as many as are allowed", shared.limits.streams),
        )
        .hint("close one, or ask again and again with follow=false")
    };
    shared.stream().ok_or_else(problem)
}

/// What happened and happens, as server-sent events: state changes, settings, guest panics, placement moves, pause pressure,
/// steal. Each has an id; `Last-Event-ID` resumes behind one. Events that are gone are announced by one of kind `gap`.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events", operation_id = "followEvents",
    params(
        ("after" = Option<u64>, Query, minimum = 0, description = "Start behind the event with this id; 0 starts with the oldest that is kept"),
        ("follow" = Option<bool>, Query, description = "false ends the answer with the last event there is; true if it is not given"),
        ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{1,19}$", description = "As `after`, sent by browsers when they reconnect"),
    ),
    responses(
        (status = 200, description = "Server-sent events, each with an Event as its data", body = Event, content_type = "text/event-stream"),
        Crowded, Always
    )
)]
pub(super) async fn events(State(shared): Context, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let query = Query::parse(uri.query(), &["after", "follow"])?;
    let follow = query.flag("follow", true)?;
    let start = if follow { shared.events.last_id() } else { 0 };
    let after = query.number("after", start, 0, MOST)?;
    let resumed = one(&headers, "last-event-id")?.filter(|id| !id.is_empty()).map(last_event_id).transpose()?;
    let seen = resumed.unwrap_or(after);
    let body = if follow {
        let held = permit(&shared)?;
        let (sender, receiver) = mpsc::channel(CHUNKS);
        tokio::spawn(follow_events(shared, seen, sender, held));
        Body::new(Chunks(receiver))
    } else {
        Body::from(written(&shared.events.after(seen, usize::MAX)))
    };
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

async fn follow_events(shared: Arc<Shared>, mut seen: u64, sender: mpsc::Sender<Bytes>, _held: Held) {
    let mut news = shared.events.subscribe();
    // Tells the client that it is connected, and how soon to come back.
    let mut chunk = Bytes::from_static(b"retry: 1000\n\n");
    loop {
        if sender.send(chunk).await.is_err() {
            return;
        }
        news.borrow_and_update();
        let events = shared.events.after(seen, EVENTS);
        if let Some(last) = events.last() {
            seen = last.id;
            chunk = Bytes::from(written(&events));
            continue;
        }
        let waited = tokio::select! {
            waited = timeout(shared.limits.heartbeat, news.changed()) => waited,
            () = sender.closed() => return,
        };
        // A comment keeps the connection alive, and shows that the client is gone.
        chunk = Bytes::from_static(if waited.is_err() { b":\n\n" } else { b"" });
    }
}

/// Events as the protocol writes them (HTML, section 9.2.6).
fn written(events: &[Event]) -> String {
    let one = |event: &Event| {
        // Texts and numbers only: it cannot fail, and JSON has no line break in it.
        let data = serde_json::to_string(event).expect("invariant: wire types are JSON");
        format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, event.what.name())
    };
    events.iter().map(one).collect()
}

/// What is kept of the guest's serial output: the bytes themselves. The headers `Serial-From` and `Serial-Next` number the first
/// byte and the one behind the last, counted from the first that the guest sent.
#[utoipa::path(
    get, path = "/api/v1/serial", tag = "serial", operation_id = "getSerial",
    params(
        ("from" = Option<u64>, Query, minimum = 0, description = "Number of the first byte; the oldest that is kept if it is not given"),
        ("limit" = Option<u64>, Query, minimum = 0, maximum = 262_144, description = "Bytes at most; all if it is not given"),
    ),
    responses(
        (status = 200, description = "The bytes", body = String, content_type = "application/octet-stream",
         headers(("Serial-From" = u64, description = "Number of the first byte"), ("Serial-Next" = u64, description = "Number of the byte behind the last"))),
        Always
    )
)]
pub(super) async fn serial_history(State(shared): Context, uri: Uri) -> Result<Response, Problem> {
    let query = Query::parse(uri.query(), &["from", "limit"])?;
    let most = crate::serial::KEPT_BYTES as u64;
    let limit = query.number("limit", most, 0, most)?;
    // At most KEPT_BYTES.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (from, bytes) = shared.serial.read(query.number("from", 0, 0, MOST)?, limit);
    let next = from + bytes.len() as u64;
    let mut response = octets(Body::from(bytes), from);
    response.headers_mut().insert(SERIAL_NEXT, HeaderValue::from(next));
    Ok(response)
}

/// The guest's serial output as it comes, behind what is kept of it. Ends when the client reads so slowly that bytes it has not
/// seen are gone; it can go on from there with `from`.
#[utoipa::path(
    get, path = "/api/v1/serial/stream", tag = "serial", operation_id = "followSerial",
    params(("from" = Option<u64>, Query, minimum = 0, description = "Number of the first byte; the oldest that is kept if it is not given")),
    responses(
        (status = 200, description = "The bytes, for as long as the client listens", body = String, content_type = "application/octet-stream",
         headers(("Serial-From" = u64, description = "Number of the first byte"))),
        Crowded, Always
    )
)]
pub(super) async fn serial_stream(State(shared): Context, uri: Uri) -> Result<Response, Problem> {
    let from = Query::parse(uri.query(), &["from"])?.number("from", 0, 0, MOST)?;
    let held = permit(&shared)?;
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let (from, _) = shared.serial.read(from, 0);
    tokio::spawn(follow_serial(shared, from, sender, held));
    Ok(octets(Body::new(Chunks(receiver)), from))
}

async fn follow_serial(shared: Arc<Shared>, mut next: u64, sender: mpsc::Sender<Bytes>, _held: Held) {
    let mut news = shared.serial.subscribe();
    loop {
        news.borrow_and_update();
        let (from, bytes) = shared.serial.read(next, BYTES);
        if from > next {
            return;
        }
        if !bytes.is_empty() {
            next += bytes.len() as u64;
            if sender.send(Bytes::from(bytes)).await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            _ = news.changed() => {}
            () = sender.closed() => return,
        }
    }
}

fn octets(body: Body, from: u64) -> Response {
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert(SERIAL_FROM, HeaderValue::from(from));
    response
}
