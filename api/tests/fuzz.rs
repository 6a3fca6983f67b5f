// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a body, a path, a query or a header, and any JSON as an answer: understood, or refused with a problem.
//!
//! Valid bodies with a few bytes changed come further into the server than noise does, so most cases are such.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use api::input;
use api::wire::{
    AffinityChange, Configuration, Decisions, Event, Host, Pause, PauseChange, Placement, PlacementChange, Problem,
    StateChange, Stats, Thresholds, ThresholdsChange, Topology, Vcpus, Vm,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use support::{Bench, code};

/// Bodies that are accepted, with the method and the path that accept them.
const BODIES: [(&str, &str, &str); 6] = [
    ("PUT", "/api/v1/vm", r#"{"cpus": {"count": 4, "sockets": 2}, "memory": "512M", "numa": 2}"#),
    ("PUT", "/api/v1/vm/state", r#"{"state": "running"}"#),
    ("PATCH", "/api/v1/vcpus/1", r#"{"affinity": "0-1,3"}"#),
    ("PATCH", "/api/v1/placement", r#"{"mode": "pin", "pin": "0-3", "rules": {"numa": false}}"#),
    ("PATCH", "/api/v1/pause", r#"{"mode": "observe", "mechanism": "park", "parameters": {"bail_after": 5}}"#),
    ("PATCH", "/api/v1/thresholds", r#"{"pause_events_per_s": 500, "steal_permille": 50}"#),
];

/// One change of a text.
#[derive(Clone, Debug)]
enum Slip {
    Byte(usize, u8),
    Cut(usize),
    Twice(usize, usize),
    Put(usize, &'static str),
}

/// Pieces that parsers stumble over.
const PIECES: [&str; 14] = [
    "null",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    "-1",
    "1e308",
    "18446744073709551616",
    "\\ud800",
    "\u{0}",
    "{\"a\":",
    "0-99999",
];

fn slips() -> impl Strategy<Value = Vec<Slip>> {
    let one = prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Slip::Byte(at, byte)),
        any::<usize>().prop_map(Slip::Cut),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Slip::Twice(from, to)),
        (any::<usize>(), prop::sample::select(&PIECES[..])).prop_map(|(at, piece)| Slip::Put(at, piece)),
    ];
    prop::collection::vec(one, 0..4)
}

fn slipped(text: &str, slips: &[Slip]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for slip in slips {
        let within = |at: usize| at % (bytes.len() + 1);
        match *slip {
            Slip::Byte(at, byte) => {
                let at = within(at);
                bytes.splice(at..(at + 1).min(bytes.len()), [byte]);
            }
            Slip::Cut(at) => bytes.truncate(within(at)),
            Slip::Twice(from, to) => {
                let (from, to) = (within(from).min(within(to)), within(from).max(within(to)));
                let part = bytes[from..to].to_vec();
                bytes.splice(to..to, part);
            }
            Slip::Put(at, piece) => {
                let at = within(at);
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    bytes
}

/// What is accepted is read again as it was; everything else is a problem of the client's.
fn judged<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    match input::body::<T>(bytes) {
        Ok(read) => assert_eq!(input::body::<T>(&serde_json::to_vec(&read).unwrap()).as_ref(), Ok(&read)),
        Err(problem) => assert!([400, 422].contains(&problem.code.status()), "{problem:?}"),
    }
}

/// An answer is read or it is not; a client does not panic over it.
fn answered(value: &Value) {
    fn one<T: DeserializeOwned + Serialize>(value: &Value) {
        if let Ok(read) = serde_json::from_value::<T>(value.clone()) {
            assert!(serde_json::to_value(&read).is_ok());
        }
    }
    one::<Vm>(value);
    one::<Vcpus>(value);
    one::<Topology>(value);
    one::<Host>(value);
    one::<Placement>(value);
    one::<Pause>(value);
    one::<Stats>(value);
    one::<Thresholds>(value);
    one::<Decisions>(value);
    one::<Event>(value);
    one::<Problem>(value);
}

proptest! {
    #[test]
    fn any_body_is_read_or_a_problem(slips in slips(), noise in prop::collection::vec(any::<u8>(), 0..128)) {
        for (_, _, body) in BODIES {
            for bytes in [slipped(body, &slips), noise.clone()] {
                judged::<Configuration>(&bytes);
                judged::<StateChange>(&bytes);
                judged::<AffinityChange>(&bytes);
                judged::<PlacementChange>(&bytes);
                judged::<PauseChange>(&bytes);
                judged::<ThresholdsChange>(&bytes);
            }
        }
    }
}

#[test]
fn any_answer_is_read_or_an_error() {
    let bench = Bench::running();
    let paths = ["vm", "vcpus", "topology", "host", "placement", "pause", "thresholds", "stats", "decisions"];
    let texts: Vec<String> =
        paths.iter().map(|path| support::json(&bench.get(&format!("/api/v1/{path}"))).to_string()).collect();
    proptest!(|(slips in slips(), which in 0..texts.len())| {
        if let Ok(value) = serde_json::from_slice(&slipped(&texts[which], &slips)) {
            answered(&value);
        }
    });
}

#[test]
fn a_server_answers_whatever_comes() {
    let bench = Bench::running();
    proptest!(|(
        slips in slips(),
        which in 0..BODIES.len(),
        query in "[a-z%0-9&=+]{0,16}",
        header in "[ -~]{0,24}",
        segment in "[!-~]{1,12}",
    )| {
        let (method, path, body) = BODIES[which];
        let named = format!("/api/v1/vcpus/{}", segment.replace(['?', '#', '/'], "%"));
        for path in [path.to_owned(), format!("{path}?{query}"), named] {
            let headers = [("content-type", "application/json"), ("if-match", header.trim())];
            let answer = bench.client().send(method, &path, &headers, Some(&slipped(body, &slips))).unwrap();
            prop_assert!(answer.head.status < 500, "{method} {path}: {}", answer.head.status);
            if answer.head.status >= 400 && answer.head.header("content-type").is_some() {
                prop_assert_ne!(code(&answer), "");
            }
        }
    });
    bench.is_well();
}
