// SPDX-License-Identifier: Apache-2.0
//! Many connections, and more than the process has file descriptors for. A program of its own: limits are the process's.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Bench, until};

/// Connections that do nothing.
const IDLE: usize = 1000;

#[test]
fn idle_connections_are_harmless_and_running_out_of_files_passes() {
    let before = getrlimit(Resource::Nofile);
    // Both ends of every connection are in this process.
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum }).unwrap();
    let bench = Bench::running();
    let most = before.maximum.map_or(IDLE, |most| usize::try_from(most).unwrap().saturating_sub(100) / 2).min(IDLE);
    let idle: Vec<UnixStream> = (0..most).map(|_| bench.connect()).collect();
    bench.is_well();
    until("all are accepted", || {
        support::json(&bench.get("/api/v1/stats"))["api"]["connections"].as_u64() == Some(most as u64 + 1)
    });
    drop(idle);

    // A connection takes two descriptors; of the last one the server's half is missing.
    let held: Vec<UnixStream> = (0..8).map(|_| bench.connect()).collect();
    until("the idle ones are given back", || {
        support::json(&bench.get("/api/v1/stats"))["api"]["connections"].as_u64() == Some(9)
    });
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let tight = Rlimit { current: Some(open + 2), maximum: before.maximum };
    setrlimit(Resource::Nofile, tight).unwrap();
    let more: Vec<_> = (0..8).map_while(|_| UnixStream::connect(bench.socket()).ok()).collect();
    assert!(more.len() < 8, "there were descriptors left");
    drop((held, more));
    setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum }).unwrap();
    bench.is_well();
}
