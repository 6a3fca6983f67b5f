// SPDX-License-Identifier: Apache-2.0
//! Tools that know nothing of this project, and judge it: schemathesis the API by its OpenAPI document, promtool the metrics.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use api::client::{Client, Endpoint};

use crate::served::{Memory, TOKEN};

/// A program of this name in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file())
}

/// `SCHEMATHESIS=PATH`, or the one in `PATH`.
fn schemathesis() -> Option<PathBuf> {
    let named = std::env::var_os("SCHEMATHESIS").map(PathBuf::from).filter(|path| path.is_file());
    named.or_else(|| in_path("schemathesis"))
}

pub(crate) fn schemathesis_missing() -> Option<String> {
    let how = "schemathesis is not installed: python3 -m venv DIR && DIR/bin/pip install schemathesis, and SCHEMATHESIS=DIR/bin/schemathesis";
    schemathesis().is_none().then(|| how.to_owned())
}

pub(crate) fn promtool_missing() -> Option<String> {
    in_path("promtool").is_none().then(|| "promtool is not installed (Debian's package prometheus)".to_owned())
}

/// Requests made from the document, good and bad ones. Streams have no end and are left out.
pub(crate) fn schemathesis_finds_nothing() {
    let memory = Memory::serve(4);
    let directory = tempfile::tempdir().unwrap();
    // A body may fit the document and still name a CPU that is not there, or a generation that is gone.
    // One that does not fit may have come with such a generation, which is looked at first (RFC 9110, 13.2.1).
    let settings = "[checks.positive_data_acceptance]\nexpected-statuses = [\"2xx\", 401, 404, 409, 412, 422, 429, 503]\n\
         [checks.negative_data_rejection]\nexpected-statuses = [400, 401, 404, 405, 408, 409, 412, 413, 415, 422, 429, 503]\n";
    std::fs::write(directory.path().join("schemathesis.toml"), settings).unwrap();
    let told = Command::new(schemathesis().unwrap())
        .args(["run", &format!("{}openapi.json", memory.url())])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--exclude-operation-id", "followEvents", "--exclude-operation-id", "followSerial"])
        .args(["--request-timeout", "30", "--max-time", "60", "--seed", "1"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "{said}\n{}", String::from_utf8_lossy(&told.stderr));
    // A run that tried nothing finds nothing.
    assert!(said.contains("Test cases:"), "{said}");
}

pub(crate) fn promtool_finds_nothing() {
    let memory = Memory::serve(4);
    let client = Client::new(Endpoint::Tcp { address: memory.address(), token: TOKEN.to_owned() });
    // Its own parser is of the older text; both are written from the same numbers.
    let answer = client.send("GET", "/metrics", &[("accept", "text/plain")], None).unwrap();
    assert_eq!(answer.head.status, 200);
    let mut child = Command::new(in_path("promtool").unwrap())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &answer.body).unwrap();
    let told = child.wait_with_output().unwrap();
    let said = [told.stdout, told.stderr].concat();
    assert!(told.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
