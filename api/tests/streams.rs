// SPDX-License-Identifier: Apache-2.0
//! Events and serial output while a client listens: resumed by number, and announced where something is gone.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::io::Read;

use api::wire::{Event, EventKind, VmState};
use support::{Bench, json};

fn panic(bench: &Bench, times: usize) {
    (0..times)
        .for_each(|at| _ = bench.monitor.events().publish(at as u64, EventKind::GuestPanic { crash_loaded: true }));
}

#[test]
fn what_happens_is_told_as_it_happens() {
    let bench = Bench::running();
    let mut events = bench.client().events(None).unwrap();
    bench.send("PUT", "/api/v1/vm/state", &[], r#"{"state": "paused"}"#);
    bench.send("PATCH", "/api/v1/pause", &[], r#"{"mode": "observe"}"#);
    let mut next = || events.next().unwrap().unwrap();
    let EventKind::StateChanged { state, generation, .. } = next().what else { panic!("another event") };
    assert_eq!((state, generation.0), (VmState::Paused, 2));
    assert!(matches!(next(), Event { id: 2, what: EventKind::SettingsChanged { .. }, .. }));
}

#[test]
fn a_client_goes_on_where_it_was() {
    let bench = Bench::running();
    panic(&bench, 5);
    let told = |query: &str, headers: &[(&str, &str)]| {
        let path = format!("/api/v1/events?follow=false{query}");
        let answer = bench.client().send("GET", &path, headers, None).unwrap();
        assert_eq!(answer.head.header("content-type"), Some("text/event-stream"));
        String::from_utf8(answer.body).unwrap()
    };
    assert_eq!(told("", &[]).matches("event: guest_panic\n").count(), 5);
    assert!(told("&after=4", &[]).starts_with("id: 5\nevent: guest_panic\ndata: {\"id\":5,"));
    assert_eq!(told("&after=0", &[("last-event-id", "5")]), "");
    let bad = bench.client().send("GET", "/events?follow=false", &[("last-event-id", "x")], None).unwrap();
    assert_eq!((bad.head.status, support::code(&bad).as_str()), (400, "bad_header"));
}

#[test]
fn what_is_gone_is_announced() {
    let bench = Bench::running();
    panic(&bench, api::events::KEPT + 10);
    let mut events = bench.client().events(Some(3)).unwrap();
    let first = events.next().unwrap().unwrap();
    assert_eq!((first.id, first.what), (10, EventKind::Gap { missed: 7 }));
    assert_eq!(events.next().unwrap().unwrap().id, 11);
}

#[test]
fn serial_output_is_its_bytes() {
    let bench = Bench::running();
    bench.monitor.serial().append(b"boot\xff\0");
    let answer = bench.get("/api/v1/serial");
    assert_eq!(answer.body, b"boot\xff\0");
    assert_eq!((answer.head.header("serial-from"), answer.head.header("serial-next")), (Some("0"), Some("6")));
    assert_eq!(bench.get("/api/v1/serial?from=2&limit=2").body, b"ot");
    let (head, mut coming) = bench.client().open("GET", "/api/v1/serial/stream?from=4", &[], None).unwrap();
    assert_eq!((head.status, head.header("serial-from")), (200, Some("4")));
    bench.monitor.serial().append(b"more");
    let mut bytes = [0; 6];
    coming.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"\xff\0more");
}

#[test]
fn the_page_is_the_same_for_everybody_and_brings_its_policy() {
    let bench = Bench::running();
    let files = ["/", "/page/page.js", "/page/page.css", "/page/icon.svg"];
    for (path, client) in
        files.into_iter().flat_map(|path| [(path, bench.over_tcp("no token")), (path, bench.client())])
    {
        let answer = client.send("GET", path, &[], None).unwrap();
        assert_eq!(answer.head.status, 200, "{path}");
        assert!(answer.head.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        let text = String::from_utf8(answer.body).unwrap().replace("http://www.w3.org/2000/svg", "");
        let outside = ["http://", "https://", "@import", "url(", "eval(", "innerHTML", "style=\""];
        assert!(!outside.iter().any(|word| text.contains(word)), "{path}");
    }
    let asks = |client: api::client::Client| {
        String::from_utf8(client.send("GET", "/", &[], None).unwrap().body).unwrap().contains("data-token=\"needed\"")
    };
    assert!(asks(bench.over_tcp("no token")) && !asks(bench.client()));
    for absent in ["/page/page.html", "/page/..", "/page/%2e%2e", "/page/%ff", "/page/page.js/"] {
        assert_eq!(support::code(&bench.get(absent)), "not_found", "{absent}");
    }
}

#[test]
fn limits_of_decisions_and_counts_of_the_api() {
    let bench = Bench::running();
    let decisions = json(&bench.get("/api/v1/decisions?limit=7"));
    assert_eq!(decisions["latest"].as_array().unwrap().len(), 7);
    assert_eq!(bench.get("/api/v1/decisions?limit=9999").head.status, 400);
    let api = &json(&bench.get("/api/v1/stats"))["api"];
    assert_eq!((api["requests"].as_u64(), api["refused"].as_u64()), (Some(2), Some(1)));
}
