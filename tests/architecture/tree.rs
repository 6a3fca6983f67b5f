// SPDX-License-Identifier: Apache-2.0
//! The files of the workspace, and how each must open.
//!
//! Invariant: every source file is looked at, wherever it lies, but for what a build leaves behind.

use std::path::{Path, PathBuf};

/// Production code of a file that one reader can hold; more becomes two files.
const MOST_PRODUCTION_LINES: usize = 400;

/// Files that were longer before they were looked at, and how long. None may be added or grow, and one that has shrunk
/// to the limit leaves the list.
const OUTGROWN: &[(&str, usize)] = &[];

/// Ends of the names of files that are source.
const SOURCES: [&str; 10] = [".rs", ".c", ".h", ".S", ".s", ".ld", ".sh", ".py", ".js", ".css"];

/// A script may start with its interpreter.
const LICENCE_WITHIN_LINES: usize = 2;

const LICENCE: &str = "SPDX-License-Identifier: Apache-2.0";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every source file below `root`, relative to it, in order.
pub(crate) fn sources(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(root, "", &mut found);
    found.sort();
    found
}

/// The sources of the package in `room` that end up in the program.
pub(crate) fn production_sources(root: &Path, room: &str) -> Vec<String> {
    let directory = format!("{room}/src/");
    let in_room = |path: &String| path.starts_with(&directory) && path.ends_with(".rs") && !is_test(path);
    sources(root).into_iter().filter(in_room).collect()
}

/// Whether the file holds tests and nothing else.
pub(crate) fn is_test(path: &str) -> bool {
    path.ends_with("tests.rs") || path.split('/').any(|part| part == "tests" || part == "benches")
}

/// What the file's first lines lack, if anything.
pub(crate) fn missing_header(path: &str, text: &str) -> Option<String> {
    let rust = path.ends_with(".rs");
    let within = if rust { 1 } else { LICENCE_WITHIN_LINES };
    if !text.lines().take(within).any(|line| line.contains(LICENCE)) {
        return Some(format!("does not open with `{LICENCE}`"));
    }
    // The module's own lint opening may stand between, on one line or several.
    let is_attribute = |line: &&str| ["#![", " ", ")]"].iter().any(|start| line.starts_with(start));
    let documented = text.lines().skip(1).find(|line| !is_attribute(line)).is_some_and(|line| line.starts_with("//! "));
    (rust && !documented).then(|| "no `//!` line below the licence says what it is for".into())
}

/// What is wrong with the length of a file, if anything.
pub(crate) fn is_outgrown(path: &str, lines: usize) -> Option<String> {
    length_breach(OUTGROWN, path, lines)
}

fn length_breach(outgrown: &[(&str, usize)], path: &str, lines: usize) -> Option<String> {
    let known = outgrown.iter().find(|(known, _)| *known == path);
    let limit = known.map_or(MOST_PRODUCTION_LINES, |(_, lines)| *lines);
    if lines > limit {
        return Some(format!("{lines} lines, tests not counted"));
    }
    let mended = known.is_some() && lines <= MOST_PRODUCTION_LINES;
    mended.then(|| "fits now: take it off the list of those that do not".into())
}

fn collect(root: &Path, directory: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, found);
        } else if kind.is_file() && SOURCES.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

#[test]
fn a_missing_header_is_seen() {
    let good = "// SPDX-License-Identifier: Apache-2.0\n//! Does it.\n";
    let opened = "// SPDX-License-Identifier: Apache-2.0\n#![expect(\n    unsafe_code,\n)]\n//! Does it.\n";
    assert_eq!((missing_header("a.rs", good), missing_header("a.rs", opened)), (None, None));
    assert_eq!(missing_header("a.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"), None);
    for bad in ["", "//! Does it.\n", "\n// SPDX-License-Identifier: Apache-2.0\n//! Late.\n"] {
        assert!(missing_header("a.rs", bad).unwrap().contains("SPDX"), "{bad:?}");
    }
    let silent = "// SPDX-License-Identifier: Apache-2.0\nfn main() {}\n";
    assert!(missing_header("a.rs", silent).unwrap().contains("//!"));
}

#[test]
fn tests_are_told_from_production() {
    for path in ["a/src/tests.rs", "a/src/b_tests.rs", "a/src/b/tests/c.rs", "a/tests/b.rs", "a/benches/b.rs"] {
        assert!(is_test(path), "{path}");
    }
    assert!(!is_test("a/src/test_bench.rs"));
}

#[test]
fn a_long_file_is_seen_and_a_known_one_may_only_shrink() {
    let breach = |path, lines| length_breach(&[("old.rs", 450)], path, lines);
    assert_eq!((breach("new.rs", 400), breach("old.rs", 450)), (None, None));
    assert!(breach("new.rs", 401).unwrap().contains("401"));
    assert!(breach("old.rs", 451).unwrap().contains("451"));
    assert!(breach("old.rs", 400).unwrap().contains("list"));
}
