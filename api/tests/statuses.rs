// SPDX-License-Identifier: Apache-2.0
//! What routes answer is compared with the OpenAPI document: every documented status of every route comes, no other does, and
//! bodies are what the document says.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

use api::client::Answer;
use api::fake::FakeMonitor;
use api::server::Limits;

use support::Bench;
use support::document::{Document, Route};

/// Methods that a client may try.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// What is out of the ordinary about a request, the machine or the server. Every route is met with each of them, and what it
/// answers is noted: which statuses come of it is nobody's to say beforehand.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// Nothing.
    Nothing,
    NoMachine,
    StoppedMachine,
    QueryThatIsNotTaken,
    WrongToken,
    FileThatIsNotThere,
    BodyThatIsLate,
    BodyThatIsLarge,
    BodyOfAnotherType,
    BodyOfAnotherTypeForNoMachine,
    BodyThatDoesNotFit,
    BodyThatDoesNotFitForNoMachine,
    OldGeneration,
    OldGenerationForNoMachine,
    NoPlaceForAStream,
    NoPlaceForAConnection,
}

impl Odd {
    const ALL: [Self; 16] = [
        Self::Nothing,
        Self::NoMachine,
        Self::StoppedMachine,
        Self::QueryThatIsNotTaken,
        Self::WrongToken,
        Self::FileThatIsNotThere,
        Self::BodyThatIsLate,
        Self::BodyThatIsLarge,
        Self::BodyOfAnotherType,
        Self::BodyOfAnotherTypeForNoMachine,
        Self::BodyThatDoesNotFit,
        Self::BodyThatDoesNotFitForNoMachine,
        Self::OldGeneration,
        Self::OldGenerationForNoMachine,
        Self::NoPlaceForAStream,
        Self::NoPlaceForAConnection,
    ];
}

fn body(route: &Route) -> Option<&'static str> {
    let request = &route.operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    Some(match request.as_str()?.rsplit('/').next().unwrap() {
        "Configuration" => r#"{"cpus": 2}"#,
        "StateChange" => r#"{"state": "running"}"#,
        "AffinityChange" => r#"{"affinity": "0-1"}"#,
        "PlacementChange" => r#"{"mode": "pin", "pin": "0-1"}"#,
        "ThresholdsChange" => r#"{"steal_permille": 200}"#,
        "PauseChange" => r#"{"mode": "observe"}"#,
        other => panic!("{other}: no body is known for it"),
    })
}

/// Sends the request as it should be, but for what is given.
fn send(route: &Route, bench: &Bench, query: &str, headers: &[(&str, &str)], other: Option<&str>) -> Answer {
    let path = format!("{}{query}", route.path);
    let mut all = vec![];
    if !headers.iter().any(|(name, _)| *name == "content-type") && body(route).is_some() {
        all.push(("content-type", "application/json"));
    }
    all.extend_from_slice(headers);
    let sent = other.filter(|_| body(route).is_some()).or(body(route)).map(str::as_bytes);
    let client = bench.client();
    if route.is_stream() {
        let (head, coming) = client.open(&route.method, &path, &all, sent).unwrap();
        let mut body = Vec::new();
        if head.status != 200 {
            coming.take(1 << 20).read_to_end(&mut body).unwrap();
        }
        return Answer { head, body };
    }
    client.send(&route.method, &path, &all, sent).unwrap()
}

/// Meets a route with something odd.
fn meet(route: &Route, odd: Odd) -> Answer {
    let empty = || Bench::of(FakeMonitor::empty(), Limits::default());
    let small = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        Bench::of(FakeMonitor::running(4), limits)
    };
    let text = [("content-type", "text/plain")];
    let plain = |bench: &Bench| send(route, bench, "", &[], None);
    let misfit = Some(r#"{"nonsense": 1}"#);
    match odd {
        Odd::Nothing => plain(&Bench::running()),
        Odd::NoMachine => plain(&empty()),
        Odd::StoppedMachine => {
            let bench = Bench::running();
            let stopped = bench.send("PUT", "/api/v1/vm/state", &[], r#"{"state": "stopped"}"#);
            assert_eq!(stopped.head.status, 200);
            plain(&bench)
        }
        Odd::QueryThatIsNotTaken => send(route, &Bench::running(), "?nonsense=1", &[], None),
        Odd::WrongToken => {
            let headers = [("content-type", "application/json")];
            Bench::running().over_tcp("wrong").send(&route.method, &route.path, &headers, None).unwrap()
        }
        Odd::FileThatIsNotThere => {
            let path = route.path.replace("page.js", "absent");
            send(&Route { path, ..route.clone() }, &Bench::running(), "", &[], None)
        }
        Odd::BodyThatIsLate if body(route).is_some() => {
            late(route, &small(|limits| limits.body = Duration::from_millis(20)))
        }
        Odd::BodyThatIsLate => plain(&Bench::running()),
        Odd::BodyThatIsLarge => send(route, &Bench::running(), "", &[], Some(&" ".repeat(100_000))),
        Odd::BodyOfAnotherType => send(route, &Bench::running(), "", &text, None),
        Odd::BodyOfAnotherTypeForNoMachine => send(route, &empty(), "", &text, None),
        Odd::BodyThatDoesNotFit => send(route, &Bench::running(), "", &[], misfit),
        Odd::BodyThatDoesNotFitForNoMachine => send(route, &empty(), "", &[], misfit),
        Odd::OldGeneration => send(route, &Bench::running(), "", &[("if-match", "\"999\"")], None),
        Odd::OldGenerationForNoMachine => send(route, &empty(), "", &[("if-match", "\"999\"")], None),
        Odd::NoPlaceForAStream => plain(&small(|limits| limits.streams = 0)),
        Odd::NoPlaceForAConnection => plain(&small(|limits| limits.connections = 0)),
    }
}

/// A body that is announced and does not come.
fn late(route: &Route, bench: &Bench) -> Answer {
    let mut stream = bench.connect();
    let head = format!(
        "{} {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n",
        route.method, route.path
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    // Through the client's own reader, so that the answer is read as every other.
    let path = bench.directory.path().join("replay.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let replay = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(text.as_bytes()).unwrap();
    });
    let client = api::client::Client::new(api::client::Endpoint::Unix(path));
    let answer = client.send("GET", "/", &[], None).unwrap();
    replay.join().unwrap();
    answer
}

#[test]
fn what_routes_answer_is_what_is_documented_of_them_no_less_and_no_more() {
    let document = Document::read();
    let (mut documented, mut produced) = (BTreeSet::new(), BTreeSet::new());
    let mut complaints = Vec::new();
    for route in document.routes() {
        documented.extend(route.statuses().into_iter().map(|status| (route.name(), status)));
        for odd in Odd::ALL {
            let answer = meet(&route, odd);
            complaints.extend(document.complaint(&route, &answer).map(|complaint| format!("{odd:?}: {complaint}")));
            produced.insert((route.name(), answer.head.status));
        }
    }
    assert!(documented.len() > 100, "only {}: reading the document went wrong", documented.len());
    let never: Vec<_> = documented.difference(&produced).collect();
    assert!(never.is_empty(), "documented and never answered: {never:?}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_status_that_was_promised_is_documented() {
    let documented: BTreeSet<u16> = Document::read().routes().iter().flat_map(Route::statuses).collect();
    let promised = [200, 201, 204, 400, 401, 404, 408, 409, 412, 413, 415, 422, 429, 503];
    assert_eq!(documented, BTreeSet::from(promised), "405 is of a path and not of a route: the test below");
}

#[test]
fn a_method_that_a_path_does_not_take_is_told_those_it_takes() {
    let bench = Bench::running();
    for (path, documented) in Document::read().paths() {
        for method in METHODS {
            if documented.iter().any(|known| known == method) {
                continue;
            }
            let method = method.to_uppercase();
            let answer = bench
                .client()
                .send(&method, &path.replace("{index}", "1").replace("{file}", "page.js"), &[], None)
                .unwrap();
            assert_eq!(answer.head.status, 405, "{method} {path}");
            assert_eq!(support::code(&answer), "method_not_allowed");
            let allow = answer.head.header("allow").unwrap_or_default().to_lowercase();
            let allowed: BTreeSet<&str> = allow.split(',').map(str::trim).filter(|method| *method != "head").collect();
            assert_eq!(allowed, documented.iter().map(|known| known.as_str()).collect(), "{method} {path}");
        }
    }
}

#[test]
fn what_the_machine_does_not_do_in_time_may_still_happen() {
    let limits = Limits { change: Duration::from_millis(20), ..Limits::default() };
    let bench = Bench::of(FakeMonitor::running(4), limits);
    bench.monitor.set_stuck(true);
    let answer = bench.send("PUT", "/api/v1/vm/state", &[], r#"{"state": "paused"}"#);
    assert_eq!((answer.head.status, support::code(&answer).as_str()), (503, "busy"));
    assert_eq!(answer.head.header("retry-after"), Some("1"));
    bench.monitor.set_stuck(false);
    bench.monitor.set_ending(true);
    let answer = bench.send("POST", "/api/v1/vm/nmi", &[], "");
    assert_eq!((answer.head.status, support::code(&answer).as_str()), (503, "ending"));
    bench.is_well();
}

#[test]
fn a_machine_is_created_started_paused_and_stopped() {
    let bench = Bench::of(FakeMonitor::empty(), Limits::default());
    assert_eq!(support::code(&bench.get("/api/v1/vm")), "no_vm");
    let created = bench.send("PUT", "/api/v1/vm", &[], r#"{"cpus": {"count": 4}, "memory": "512M"}"#);
    assert_eq!(created.head.status, 201);
    assert_eq!((created.head.header("location"), created.head.header("etag")), (Some("/api/v1/vm"), Some("\"1\"")));
    let mut generation = 1;
    for state in ["running", "paused", "running", "stopped"] {
        let tag = format!("\"{generation}\"");
        let body = format!(r#"{{"state": "{state}"}}"#);
        let answer = bench.send("PUT", "/api/v1/vm/state", &[("if-match", &tag)], &body);
        assert_eq!((answer.head.status, support::json(&answer)["state"].as_str()), (200, Some(state)));
        generation += 1;
        assert_eq!(support::json(&answer)["generation"], generation);
    }
    let again = bench.send("PUT", "/api/v1/vm/state", &[], r#"{"state": "stopped"}"#);
    assert_eq!(support::json(&again)["generation"], generation, "nothing happened");
}
