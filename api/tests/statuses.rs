// SPDX-License-Identifier: Apache-2.0
//! Every status of every route of the OpenAPI document is produced, and its body is what the document says.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

use api::client::Answer;
use api::fake::FakeMonitor;
use api::server::Limits;
use serde_json::{Value, json};

use support::Bench;

/// Methods that a client may try.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

fn document() -> Value {
    serde_json::from_str(include_str!("../openapi.json")).unwrap()
}

/// One route of the document.
#[derive(Clone)]
struct Route {
    method: String,
    path: String,
    operation: Value,
}

impl Route {
    fn all(document: &Value) -> Vec<Self> {
        let paths = document["paths"].as_object().unwrap();
        let of = |(path, methods): (&String, &Value)| {
            let one = |(method, operation): (&String, &Value)| Self {
                method: method.to_uppercase(),
                path: path.replace("{index}", "1").replace("{file}", "page.js"),
                operation: operation.clone(),
            };
            methods.as_object().unwrap().iter().map(one).collect::<Vec<_>>()
        };
        paths.iter().flat_map(of).collect()
    }

    fn statuses(&self) -> Vec<u16> {
        self.operation["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap()).collect()
    }

    fn body(&self) -> Option<&'static str> {
        let request = &self.operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        Some(match request.as_str()?.rsplit('/').next().unwrap() {
            "Configuration" => r#"{"cpus": 2}"#,
            "StateChange" => r#"{"state": "running"}"#,
            "AffinityChange" => r#"{"affinity": "0-1"}"#,
            "PlacementChange" => r#"{"mode": "pin", "pin": "0-1"}"#,
            "PauseChange" => r#"{"mode": "observe"}"#,
            other => panic!("{other}: no body is known for it"),
        })
    }

    fn is_stream(&self) -> bool {
        self.path.ends_with("/stream") || self.path.ends_with("/events")
    }

    /// Sends the request as it should be, but for what is given.
    fn send(&self, bench: &Bench, query: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        let path = format!("{}{query}", self.path);
        let mut all = vec![];
        if !headers.iter().any(|(name, _)| *name == "content-type") && self.body().is_some() {
            all.push(("content-type", "application/json"));
        }
        all.extend_from_slice(headers);
        let body = body.or(self.body()).map(str::as_bytes);
        let client = bench.client();
        if self.is_stream() {
            let (head, coming) = client.open(&self.method, &path, &all, body).unwrap();
            let mut body = Vec::new();
            if head.status != 200 {
                coming.take(1 << 20).read_to_end(&mut body).unwrap();
            }
            return Answer { head, body };
        }
        client.send(&self.method, &path, &all, body).unwrap()
    }

    /// Produces a status, by what is wrong with the request or the machine.
    fn produce(&self, status: u16) -> Answer {
        let small = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            Bench::of(FakeMonitor::running(4), limits)
        };
        let creates = self.operation["operationId"] == "createVm";
        match status {
            200 | 204 => self.send(&Bench::running(), "", &[], None),
            201 => self.send(&Bench::of(FakeMonitor::empty(), Limits::default()), "", &[], None),
            400 => self.send(&Bench::running(), "?nonsense=1", &[], None),
            401 => {
                let headers = [("content-type", "application/json")];
                let wrong = Bench::running().over_tcp("wrong").send(&self.method, &self.path, &headers, None);
                wrong.unwrap()
            }
            404 if self.path.starts_with("/page/") => {
                Self { path: "/page/absent".to_owned(), ..self.clone() }.send(&Bench::running(), "", &[], None)
            }
            404 => self.send(&Bench::of(FakeMonitor::empty(), Limits::default()), "", &[], None),
            408 => self.late(&small(|limits| limits.body = Duration::from_millis(20))),
            409 if creates => self.send(&Bench::running(), "", &[], None),
            409 => {
                let bench = Bench::running();
                let stopped = bench.send("PUT", "/api/v1/vm/state", &[], r#"{"state": "stopped"}"#);
                assert_eq!(stopped.head.status, 200);
                self.send(&bench, "", &[], None)
            }
            412 => self.send(&Bench::running(), "", &[("if-match", "\"999\"")], None),
            413 => self.send(&Bench::running(), "", &[], Some(&" ".repeat(100_000))),
            415 => self.send(&Bench::running(), "", &[("content-type", "text/plain")], None),
            422 => {
                let bench =
                    Bench::of(if creates { FakeMonitor::empty() } else { FakeMonitor::running(4) }, Limits::default());
                self.send(&bench, "", &[], Some(r#"{"nonsense": 1}"#))
            }
            429 => self.send(&small(|limits| limits.streams = 0), "", &[], None),
            503 => self.send(&small(|limits| limits.connections = 0), "", &[], None),
            other => panic!("{} {}: nothing is known to produce {other}", self.method, self.path),
        }
    }

    /// A body that is announced and does not come.
    fn late(&self, bench: &Bench) -> Answer {
        let mut stream = bench.connect();
        let head = format!(
            "{} {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n",
            self.method, self.path
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

    /// What is wrong with an answer by the document.
    fn complaint(&self, document: &Value, status: u16, answer: &Answer) -> Option<String> {
        let named = format!("{} {} {status}", self.method, self.path);
        if answer.head.status != status {
            let body = String::from_utf8_lossy(&answer.body);
            return Some(format!("{named}: answered {} {body}", answer.head.status));
        }
        let Some(content) = self.operation["responses"][status.to_string()]["content"].as_object() else {
            return (!answer.body.is_empty()).then(|| format!("{named}: a body that is not documented"));
        };
        let told = answer.head.header("content-type").unwrap_or_default();
        let Some((media, described)) = content.iter().find(|(media, _)| told.split(';').next() == Some(media)) else {
            return Some(format!("{named}: content type {told} is not documented"));
        };
        if media != "application/json" || self.path == "/openapi.json" && status == 200 {
            return None;
        }
        let schema = json!({"allOf": [described["schema"]], "components": document["components"]});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let complaints: Vec<String> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
        if !complaints.is_empty() {
            return Some(format!("{named}: {}", complaints.join("; ")));
        }
        let code = body["code"].as_str();
        let known = api::wire::Code::ALL.iter().find(|known| Some(known.name()) == code);
        let fits = status < 400 || known.is_some_and(|known| known.status() == status);
        (!fits).then(|| format!("{named}: code {code:?} belongs to another status"))
    }
}

#[test]
fn every_documented_status_of_every_route_is_produced() {
    let document = document();
    let mut produced = 0;
    let mut complaints = Vec::new();
    for route in Route::all(&document) {
        for status in route.statuses() {
            let answer = route.produce(status);
            complaints.extend(route.complaint(&document, status, &answer));
            produced += 1;
        }
    }
    assert!(produced > 100, "only {produced}: reading the document went wrong");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_status_that_was_promised_is_documented() {
    let documented: BTreeSet<u16> = Route::all(&document()).iter().flat_map(Route::statuses).collect();
    let promised = [200, 201, 204, 400, 401, 404, 408, 409, 412, 413, 415, 422, 429, 503];
    assert_eq!(documented, BTreeSet::from(promised), "405 is of a path and not of a route: the test below");
}

#[test]
fn a_method_that_a_path_does_not_take_is_told_those_it_takes() {
    let document = document();
    let bench = Bench::running();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let documented: Vec<&String> = methods.as_object().unwrap().keys().collect();
        for method in METHODS {
            if documented.iter().any(|known| *known == method) {
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
