// SPDX-License-Identifier: Apache-2.0
//! The socket in the file system: made for one user, taken over from the dead, left to the living.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use libtest_mimic::Trial;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::machine::Machine;
use crate::monitor::{Monitor, Started, program};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_socket_is_respected_while_its_process_lives_and_taken_over_when_it_is_dead", taken_over),
        trial("what_is_no_socket_is_not_replaced", no_socket),
        trial("a_client_of_a_killed_machine_is_told", killed),
    ]
}

fn start(socket: &str) -> Started {
    Monitor::new(["--cpus=1", "--probe=idle seconds=300 report=none", "--api-sock", socket]).start()
}

fn taken_over() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("api.sock");
    let text = path.to_str().unwrap();
    let first = Machine::of(start(text), path.clone()).once_it_runs();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = start(text).wait().expect(1);
    assert!(second.errors.contains("another process serves there"), "{}", second.errors);
    let pid = first.vm().pid;
    first.started().signal(Signal::KILL);
    first.ended().expect(128 + 9);
    assert!(path.exists(), "a killed process leaves its socket");
    let third = Machine::of(start(text), path.clone()).once_it_runs();
    assert_ne!(third.vm().pid, pid);
    third.stop();
    assert!(!path.exists());
}

fn no_socket() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "mine").unwrap();
    let ended = start(path.to_str().unwrap()).wait().expect(1);
    assert!(ended.errors.contains("is not a socket"), "{}", ended.errors);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    let nowhere = start("/nowhere/api.sock").wait().expect(1);
    assert!(nowhere.errors.contains("take a directory that exists"), "{}", nowhere.errors);
}

fn killed() {
    let machine = Machine::running(1, "idle", &[]);
    let mut events = machine.client.events(Some(0)).unwrap();
    assert!(events.next().unwrap().is_ok(), "it was created");
    // Reads on, most likely in the middle of waiting when the process goes; the test ends only if that ends too.
    let reader = thread::spawn(move || events.map_while(Result::ok).count());
    machine.started().signal(Signal::KILL);
    reader.join().unwrap();
    let socket = machine.socket.clone();
    machine.ended().expect(128 + 9);
    let asked =
        std::process::Command::new(program()).args(["ctl", "--api-sock"]).arg(&socket).arg("vm").output().unwrap();
    assert_eq!(asked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("cannot be reached"), "{asked:?}");
}
