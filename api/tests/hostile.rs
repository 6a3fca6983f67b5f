// SPDX-License-Identifier: Apache-2.0
//! Nothing that a client does harms the machine or the other clients.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use api::fake::FakeMonitor;
use api::server::Limits;
use support::{Bench, TOKEN, code, json, until};

#[test]
fn what_is_no_http_is_answered_or_dropped() {
    let bench = Bench::running();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000));
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let nonsense: [&[u8]; 14] = [
        b"",
        b"\0\0\0\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbroken\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"PUT /api/v1/vm/state HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PUT /api/v1/vm/state HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/v1/vm\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        long.as_bytes(),
        headers.as_bytes(),
    ];
    for bytes in nonsense {
        let answer = bench.raw(bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
    }
    bench.is_well();
}

#[test]
fn a_body_that_is_not_json_is_400_and_one_that_does_not_fit_is_422() {
    let bench = Bench::running();
    let deep = "[".repeat(30_000);
    let huge = format!(r#"{{"parameters": {{"bail_after": {}}}}}"#, "9".repeat(1000));
    let cases = [
        ("", 400, "malformed_json"),
        ("{", 400, "malformed_json"),
        (r#"{"mode": "act", "mode": "act"}"#, 400, "malformed_json"),
        (r#"{"mode": "act"} {}"#, 400, "malformed_json"),
        ("{'mode': 'act'}", 400, "malformed_json"),
        ("\u{feff}{}", 400, "malformed_json"),
        (&deep, 400, "malformed_json"),
        (&huge, 400, "malformed_json"),
        (r#"{"parameters": {"bail_after": 1e400}}"#, 400, "malformed_json"),
        (r#"{"parameters": {"bail_after": 1e30}}"#, 422, "invalid_value"),
        (r#"{"parameters": {"bail_after": 18446744073709551616}}"#, 422, "invalid_value"),
        (r#"{"parameters": {"bail_after": -1}}"#, 422, "invalid_value"),
        (r#"{"parameters": {"bail_after": 65}}"#, 422, "invalid_value"),
        (r#"{"parameters": {"bail_aftr": 6}}"#, 422, "unknown_field"),
        (r#"{"mode": null}"#, 422, "invalid_value"),
        (r#"{"moed": "act"}"#, 422, "unknown_field"),
        (r#"{"__proto__": {}}"#, 422, "unknown_field"),
        ("[]", 422, "invalid_value"),
        ("null", 422, "invalid_value"),
        ("\"act\"", 422, "invalid_value"),
    ];
    for (body, status, expected) in cases {
        let answer = bench.send("PATCH", "/api/v1/pause", &[], body);
        let shown: String = body.chars().take(60).collect();
        assert_eq!((answer.head.status, code(&answer).as_str()), (status, expected), "{shown}");
        assert!(answer.body.len() < 2000, "{shown}: the answer is as long as the question");
    }
    let hint = json(&bench.send("PATCH", "/api/v1/pause", &[], r#"{"moed": "act"}"#))["hint"].to_string();
    assert!(hint.contains("did you mean `mode`"), "{hint}");
    assert_eq!(json(&bench.get("/api/v1/pause"))["generation"], 1, "nothing was changed");
}

#[test]
fn a_path_leads_nowhere_but_to_its_resource() {
    let bench = Bench::running();
    let nowhere = [
        "/api/v1/../../etc/passwd",
        "/api/v1/%2e%2e/vm",
        "/api/v1/vm/",
        "//api/v1/vm",
        "/api/v1/vm%00",
        "/api/v1/VM",
        "/api/v2/vm",
        "/%",
        "/page.html",
        "/api/v1/vcpus/",
    ];
    for path in nowhere {
        let answer = bench.get(path);
        assert_eq!((answer.head.status, code(&answer).as_str()), (404, "not_found"), "{path}");
    }
    for index in ["4", "-1", "01", "+1", "1.0", "0x1", "99999999999999999999", "%31%00", "a", "%ff"] {
        let answer = bench.get(&format!("/api/v1/vcpus/{index}"));
        let expected = if index == "%ff" { "not_found" } else { "no_such_vcpu" };
        assert_eq!((answer.head.status, code(&answer).as_str()), (404, expected), "{index}");
    }
}

#[test]
fn over_tcp_only_the_token_opens() {
    let bench = Bench::running();
    let status = |client: api::client::Client| client.send("GET", "/api/v1/vm", &[], None).unwrap().head.status;
    assert_eq!(status(bench.over_tcp(TOKEN)), 200);
    assert_eq!(status(bench.over_tcp(&TOKEN[1..])), 401);
    assert_eq!(status(bench.over_tcp("")), 401);
    let raw = |head: &str| {
        let mut stream = TcpStream::connect(bench.server.tcp().unwrap()).unwrap();
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let token = format!("authorization: Bearer {TOKEN}\r\n");
    let rebound = raw(&format!("GET /api/v1/vm HTTP/1.1\r\nhost: evil.example\r\n{token}"));
    assert!(rebound.starts_with("HTTP/1.1 400") && rebound.contains("foreign_host"), "{rebound}");
    let page = raw(&format!("GET /api/v1/vm HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n{token}"));
    assert!(page.starts_with("HTTP/1.1 400") && page.contains("foreign_origin"), "{page}");
    let hostless = raw(&format!("GET /api/v1/vm HTTP/1.1\r\n{token}"));
    assert!(hostless.starts_with("HTTP/1.1 400"), "{hostless}");
    for name in ["token", "access_token", "%74oken"] {
        let query = raw(&format!("GET /api/v1/vm?{name}={TOKEN} HTTP/1.1\r\nhost: localhost\r\n{token}"));
        assert!(query.starts_with("HTTP/1.1 400") && query.contains("token_in_query"), "{query}");
    }
    let preflight = raw("OPTIONS /api/v1/vm HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n");
    assert!(!preflight.to_lowercase().contains("access-control-allow"), "{preflight}");
}

#[test]
fn a_foreign_page_changes_nothing_over_a_forwarded_socket() {
    let bench = Bench::running();
    let press = |origin: &str| {
        let path = "/api/v1/vm/power-button";
        bench.client().send("POST", path, &[("origin", origin)], None).unwrap()
    };
    let foreign = press("http://evil.example");
    assert_eq!((foreign.head.status, code(&foreign).as_str()), (400, "foreign_origin"));
    assert_eq!(press("http://localhost").head.status, 204, "the page of this server");
}

#[test]
fn of_two_changes_with_one_generation_one_wins() {
    let bench = Bench::running();
    for _ in 0..20 {
        let tag = bench.get("/api/v1/vm").head.header("etag").unwrap().to_owned();
        let change = |mode: &'static str| {
            let (client, tag) = (bench.client(), tag.clone());
            std::thread::spawn(move || {
                let headers = [("content-type", "application/json"), ("if-match", tag.as_str())];
                let body = format!(r#"{{"mode": "{mode}"}}"#);
                client.send("PATCH", "/api/v1/pause", &headers, Some(body.as_bytes())).unwrap().head.status
            })
        };
        let mut statuses = [change("observe"), change("act")].map(|thread| thread.join().unwrap());
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412]);
    }
}

#[test]
fn a_slow_head_is_not_waited_for() {
    let limits = Limits { head: Duration::from_millis(100), ..Limits::default() };
    let bench = Bench::of(FakeMonitor::running(4), limits);
    let mut slow = bench.connect();
    slow.write_all(b"GET /api/v1/vm HTTP/1.1\r\nhost: x\r\nx: ").unwrap();
    let mut answer = Vec::new();
    // Ends with the server's close, whether it says something or not.
    let _ = slow.read_to_end(&mut answer);
    bench.is_well();
    until("the connection is given back", || json(&bench.get("/api/v1/stats"))["api"]["connections"] == 1);
}

#[test]
fn a_client_that_goes_or_stops_reading_gives_its_stream_back() {
    let limits = Limits { unread: Duration::from_millis(200), streams: 2, ..Limits::default() };
    let bench = Bench::of(FakeMonitor::running(4), limits);
    let streams = || json(&bench.get("/api/v1/stats"))["api"]["streams"].as_u64().unwrap();
    let gone = bench.client().open("GET", "/api/v1/events", &[], None).unwrap();
    assert_eq!((gone.0.status, streams()), (200, 1));
    drop(gone);
    until("the stream of a client that has gone is closed", || streams() == 0);
    let mut stuck = bench.connect();
    stuck.write_all(b"GET /api/v1/serial/stream HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the stream is open", || streams() == 1);
    until("the stream of a client that does not read is closed", || {
        bench.monitor.serial().append(&[b'x'; 60_000]);
        streams() == 0
    });
    bench.is_well();
}

#[test]
fn beyond_the_limits_clients_are_told_so() {
    let limits = Limits { connections: 3, streams: 1, ..Limits::default() };
    let bench = Bench::of(FakeMonitor::running(4), limits);
    let stream = bench.client().open("GET", "/api/v1/events", &[], None).unwrap();
    let second = bench.get("/api/v1/events");
    assert_eq!((second.head.status, code(&second).as_str()), (429, "too_many_streams"));
    let idle: Vec<_> = (0..2).map(|_| bench.connect()).collect();
    // Accepted one by one, in the order of the connects.
    until("the third is turned away", || bench.get("/api/v1/vm").head.status == 503);
    assert_eq!(code(&bench.get("/api/v1/vm")), "too_many_connections");
    drop((stream, idle));
    until("places are given back", || bench.get("/api/v1/vm").head.status == 200);
}
