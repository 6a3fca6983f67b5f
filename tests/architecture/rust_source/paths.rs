// SPDX-License-Identifier: Apache-2.0
//! The paths that code names, with the trees of `use` written out, and which of them leave a pure crate.
//!
//! Invariant: importing a module that holds something forbidden is forbidden too, for what follows is out of sight.

use std::fmt;

/// What a pure crate gets handed in instead.
const OUTSIDE: [&[&str]; 12] = [
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "io", "stdin"],
    &["std", "io", "stdout"],
    &["std", "io", "stderr"],
    &["std", "random"],
];

/// Words that stand for themselves.
const WORDS: [&str; 3] = ["unsafe", "static mut", "thread_local"];

/// A word or mark of the code, and its 1-based line.
pub(super) struct Word<'a> {
    line: usize,
    text: &'a str,
}

/// A path such as `std::fs::read`, and the line it starts on.
pub(super) struct Path {
    pub(super) line: usize,
    segments: Vec<String>,
    /// Whether a `use` brought it in.
    imported: bool,
}

impl Path {
    pub(super) fn is_outside(&self) -> bool {
        let named = |outside: &[&str]| outside.iter().zip(&self.segments).all(|(a, b)| a == b || b == "*");
        let reaches = |outside: &[&str]| {
            // `std::io` itself is traits and errors; its handles are named one by one.
            let whole = self.segments.len() >= outside.len();
            let glob = self.segments.last().is_some_and(|last| last == "*");
            let module = self.imported && self.segments.len() >= 2 && self.segments[1] != "io";
            named(outside) && (whole || glob || module)
        };
        WORDS.contains(&self.to_string().as_str()) || OUTSIDE.iter().any(|outside| reaches(outside))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.segments.join("::"))
    }
}

/// Splits code into identifiers, `::` and single marks.
pub(super) fn words(code: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for (number, mut rest) in code.lines().enumerate() {
        while let Some(next) = rest.chars().next() {
            let identifier = rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
            let len = if rest.starts_with("::") { 2 } else { identifier.max(next.len_utf8()) };
            if !next.is_whitespace() {
                words.push(Word { line: number + 1, text: &rest[..len] });
            }
            rest = &rest[len..];
        }
    }
    words
}

/// Every path in `words`.
pub(super) fn paths(words: &[Word<'_>]) -> Vec<Path> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word.text == "use" {
            at = use_tree(words, at + 1, &mut Vec::new(), &mut paths);
        } else if word.text == "static" && words.get(at + 1).is_some_and(|next| next.text == "mut") {
            paths.push(Path { line: word.line, segments: vec!["static mut".into()], imported: false });
            at += 2;
        } else if is_identifier(word.text) {
            at = plain_path(words, at, &mut paths);
        } else {
            at += 1;
        }
    }
    paths
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn plain_path(words: &[Word<'_>], first: usize, paths: &mut Vec<Path>) -> usize {
    let text = |at: usize| words.get(at).map_or("", |word| word.text);
    let mut segments = vec![text(first).to_string()];
    let mut at = first + 1;
    while text(at) == "::" && is_identifier(text(at + 1)) {
        segments.push(text(at + 1).into());
        at += 2;
    }
    paths.push(Path { line: words[first].line, segments, imported: false });
    at
}

/// One tree of a `use`, from `at` on, below `prefix`. Returns where it ends.
fn use_tree(words: &[Word<'_>], mut at: usize, prefix: &mut Vec<String>, paths: &mut Vec<Path>) -> usize {
    let depth = prefix.len();
    while let Some(word) = words.get(at) {
        match word.text {
            "{" => {
                at += 1;
                while words.get(at).is_some_and(|word| word.text != "}") {
                    at = use_tree(words, at, prefix, paths);
                    at += usize::from(words.get(at).is_some_and(|word| word.text == ","));
                }
                prefix.truncate(depth);
                return at + 1;
            }
            "::" => at += 1,
            text => {
                prefix.push(text.into());
                at += 1;
                if words.get(at).is_none_or(|next| next.text != "::") {
                    paths.push(Path { line: word.line, segments: prefix.clone(), imported: true });
                    prefix.truncate(depth);
                    return after_alias(words, at);
                }
            }
        }
    }
    at
}

fn after_alias(words: &[Word<'_>], at: usize) -> usize {
    if words.get(at).is_some_and(|word| word.text == "as") { at + 2 } else { at }
}
