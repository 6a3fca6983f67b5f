// SPDX-License-Identifier: Apache-2.0
//! The rules of ARCHITECTURE.md that a compiler does not check, as ordinary tests.
//!
//! Reads the workspace's manifests and sources as text and reports every breach at once: file, line, rule. Each rule is
//! tried on a made-up offender too, so that a rule that has stopped seeing anything is noticed.

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

mod manifest;
mod rooms;
mod rust_source;
mod tree;

use std::collections::BTreeSet;

use manifest::Member;
use rust_source::Source;

/// Fails with all `breaches`, one a line.
fn report(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

/// The members, and never none: a rule about nothing holds always.
fn members() -> Vec<Member> {
    let members = manifest::members(&tree::root());
    assert!(members.iter().any(|member| member.room == "topology"), "no member named topology: reading went wrong");
    members
}

#[test]
fn rooms_depend_on_each_other_only_as_allowed() {
    let members = members();
    let breaches: Vec<_> = members.iter().flat_map(|member| rooms::forbidden_arrows(member, &members)).collect();
    report("arrows between rooms (tests/architecture/rooms.rs lists those allowed)", &breaches);
}

#[test]
fn only_the_monitor_and_its_tools_know_the_machine() {
    let breaches: Vec<_> = members().iter().flat_map(rooms::forbidden_crates).collect();
    report("crates that a room must not depend on", &breaches);
}

#[test]
fn every_member_obeys_the_lints_of_the_workspace() {
    let breaches: Vec<_> = members()
        .iter()
        .filter(|member| !member.inherits_lints)
        .map(|member| format!("{}/Cargo.toml: add `[lints]` with `workspace = true`", member.room))
        .collect();
    report("one table of lints", &breaches);
}

#[test]
fn pure_rooms_touch_nothing_outside() {
    let root = tree::root();
    let mut breaches = Vec::new();
    for room in rooms::WITHOUT_OUTSIDE {
        for path in tree::production_sources(&root, room) {
            let source = Source::new(&std::fs::read_to_string(root.join(&path)).unwrap());
            breaches.extend(source.outside_uses().map(|(line, what)| format!("{path}:{line}: {what}")));
        }
    }
    report("what a pure room must have handed in", &breaches);
}

#[test]
fn unsafe_is_where_the_kernel_or_hardware_is_met_and_nowhere_else() {
    let root = tree::root();
    let (mut breaches, mut met) = (Vec::new(), BTreeSet::new());
    for path in tree::sources(&root).into_iter().filter(|path| !tree::is_test(path)) {
        let source = Source::new(&std::fs::read_to_string(root.join(&path)).unwrap());
        let lines: Vec<_> = source.outside_uses().filter(|(_, what)| what == "unsafe").collect();
        let place = rooms::WITH_UNSAFE.into_iter().find(|place| path.starts_with(place));
        match place {
            Some(place) if !lines.is_empty() => _ = met.insert(place),
            Some(_) => {}
            None => breaches.extend(lines.iter().map(|(line, _)| format!("{path}:{line}: unsafe"))),
        }
    }
    let idle = rooms::WITH_UNSAFE.into_iter().filter(|place| !met.contains(place));
    breaches.extend(idle.map(|place| format!("{place}: holds no unsafe any more; take it from the list")));
    report("unsafe outside the files of mechanisms", &breaches);
}

#[test]
fn every_source_file_says_its_licence_and_its_purpose() {
    let root = tree::root();
    let files = tree::sources(&root);
    assert!(files.len() > 20, "only {} source files found: reading went wrong", files.len());
    let breaches: Vec<_> = files
        .iter()
        .filter_map(|path| {
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            tree::missing_header(path, &text).map(|missing| format!("{path}: {missing}"))
        })
        .collect();
    report("how a source file opens", &breaches);
}

#[test]
fn no_file_outgrows_its_reader() {
    let root = tree::root();
    let breaches: Vec<_> = tree::sources(&root)
        .iter()
        .filter(|path| path.ends_with(".rs") && !tree::is_test(path))
        .filter_map(|path| {
            let lines = Source::new(&std::fs::read_to_string(root.join(path)).unwrap()).production_lines();
            tree::is_outgrown(path, lines).map(|breach| format!("{path}: {breach}"))
        })
        .collect();
    report("at most 400 lines of production code a file", &breaches);
}
