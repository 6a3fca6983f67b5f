// SPDX-License-Identifier: Apache-2.0
//! The Unix socket: its owner's alone, in place of a dead one, never of a live one; and a token file that is a secret.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use api::fake::FakeMonitor;
use api::server::{Limits, Listen, Served, Server, StartError, Token};
use support::Bench;

fn start(path: &Path) -> Result<Server, StartError> {
    let monitor = Arc::new(FakeMonitor::running(4));
    let served = Served { events: monitor.events(), serial: monitor.serial(), monitor };
    Server::start(Listen { socket: Some(path.to_owned()), tcp: None }, served, Limits::default())
}

#[test]
fn the_socket_is_its_owners_and_goes_with_the_server() {
    let bench = Bench::running();
    let path = bench.socket();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(bench.server);
    assert!(!path.exists());
}

#[test]
fn a_live_socket_is_respected() {
    let bench = Bench::running();
    let message = start(&bench.socket()).unwrap_err().to_string();
    assert!(message.contains("another process serves there"), "{message}");
    bench.is_well();
}

#[test]
fn a_dead_socket_is_replaced_and_nothing_else_is() {
    let directory = tempfile::tempdir().unwrap();
    let dead = directory.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    assert!(dead.exists());
    let server = start(&dead).unwrap();
    assert_eq!(server.socket(), Some(dead.as_path()));
    let file = directory.path().join("file");
    fs::write(&file, "precious").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link, &directory.path().to_owned()] {
        let message = start(path).unwrap_err().to_string();
        assert!(message.contains("is not a socket"), "{message}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let long = directory.path().join("x".repeat(200));
    assert!(start(&long).unwrap_err().to_string().contains("107 bytes"));
    let nowhere = directory.path().join("nowhere/api.sock");
    assert!(start(&nowhere).unwrap_err().to_string().contains("directory"));
}

#[test]
fn a_socket_that_somebody_else_has_put_there_since_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.sock");
    let server = start(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists());
}

#[test]
fn a_token_file_is_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let told = |content: &str, mode: u32| {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Token::read(&path).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(told("0123456789abcdef\n", 0o600), Ok(()));
    assert!(told("0123456789abcdef", 0o644).unwrap_err().contains("chmod 600"));
    assert!(told("short", 0o600).unwrap_err().contains("5 characters"));
    assert!(told(&"x".repeat(5000), 0o600).unwrap_err().contains("16 to 1024"));
    assert!(told("0123456789 abcdef", 0o600).unwrap_err().contains("visible ASCII"));
    assert!(Token::read(directory.path()).unwrap_err().to_string().contains("not a regular file"));
    assert!(Token::read(&directory.path().join("absent")).unwrap_err().to_string().contains("cannot be read"));
}
