// SPDX-License-Identifier: Apache-2.0
//! What cannot be had is an error, or is said.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::host::{kvm, monitor};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("wishes_that_cannot_be_met_are_named_before_the_guest_starts", kvm, wishes),
        trial("a_claim_directory_that_cannot_be_used_costs_coordination_and_not_the_run", kvm, directories),
        trial("claims_that_are_garbage_are_named_or_removed", kvm, garbage),
    ]
}

fn wishes() {
    let claims = TempDir::new().unwrap();
    for (arguments, part) in [
        (&["--placement", "pin=8000"][..], "cannot pin to CPUs 8000: offline or absent"),
        (&["--numa", "cpus=[0],host-node=900"], "host node 900, which does not exist; there are nodes 0"),
        (&["--numa", "cpus=[0],memory=100T,host-node=0"], "needs 109951162777600 bytes on host node 0, which has"),
    ] {
        let ended = monitor(claims.path(), arguments).run().expect(1);
        assert!(ended.errors.contains(part), "{}", ended.errors);
        assert!(ended.output.is_empty(), "the guest has run: {}", ended.output);
    }
    let usage = monitor(claims.path(), &["--placement", "pin=[]"]).run().expect(2);
    assert!(usage.errors.contains("--placement"), "{}", usage.errors);
    let usage = monitor(claims.path(), &["--numa", "cpus=[0],host-node=[0-1],policy=preferred"]).run().expect(2);
    assert!(usage.errors.contains("prefers the host nodes 0-1; name one"), "{}", usage.errors);
}

fn directories() {
    for directory in ["/proc/self/status", "/proc/claims", "/dev/null"] {
        let ended = monitor(Path::new(directory), &[]).run().expect(0);
        assert!(ended.errors.contains("claims of other VMs are not coordinated"), "{directory}: {}", ended.errors);
        let refused = monitor(Path::new(directory), &["--placement", "auto,exclusive"]).run().expect(1);
        assert!(refused.errors.contains("exclusive needs that"), "{directory}: {}", refused.errors);
    }
}

fn garbage() {
    let claims = TempDir::new().unwrap();
    fs::write(claims.path().join("1.claim"), "\u{0}garbage").unwrap();
    fs::create_dir(claims.path().join("2.claim")).unwrap();
    let ended = monitor(claims.path(), &[]).run().expect(0);
    assert!(ended.errors.contains("2.claim cannot be read and is ignored"), "{}", ended.errors);
    assert!(!claims.path().join("1.claim").exists());
}
