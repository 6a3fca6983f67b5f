// SPDX-License-Identifier: Apache-2.0
//! Just enough of Rust's grammar to tell code from comments, strings and tests, and to read the paths it names.
//!
//! Invariant: what is blanked keeps its line breaks, so a line number is that of the file.

mod paths;
mod text;

/// The code of a file: no comments, no literals, no item that only tests see.
pub(crate) struct Source {
    code: String,
    production_lines: usize,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let code = text::without_tests(&text::without_comments_and_literals(text));
        let last = text::first_test(text).unwrap_or_else(|| text.lines().count());
        Self { code, production_lines: last }
    }

    /// Lines up to the tests, which stand at the end.
    pub(crate) fn production_lines(&self) -> usize {
        self.production_lines
    }

    /// Line and name of everything that reaches out of a pure crate.
    pub(crate) fn outside_uses(&self) -> impl Iterator<Item = (usize, String)> {
        let words = paths::words(&self.code);
        paths::paths(&words).into_iter().filter(paths::Path::is_outside).map(|path| (path.line, path.to_string()))
    }
}

#[cfg(test)]
fn uses(text: &str) -> Vec<String> {
    Source::new(text).outside_uses().map(|(line, what)| format!("{line} {what}")).collect()
}

#[test]
fn a_forbidden_use_is_seen_in_every_spelling() {
    assert_eq!(uses("use std::fs;"), ["1 std::fs"]);
    assert_eq!(uses("fn f() {\n  ::std::thread::spawn(g);\n}"), ["2 std::thread::spawn"]);
    assert_eq!(uses("use std::{fmt, fs::{self, File}};"), ["1 std::fs::self", "1 std::fs::File"]);
    assert_eq!(uses("use std::time::{Duration, Instant as Clock};"), ["1 std::time::Instant"]);
    assert_eq!(uses("use std::time;\nuse std::*;"), ["1 std::time", "2 std::*"]);
    assert_eq!(uses("let x = unsafe { y };"), ["1 unsafe"]);
    assert_eq!(uses("static mut X: u8 = 0;"), ["1 static mut"]);
    assert_eq!(uses("thread_local! { static X: u8 = 0 }"), ["1 thread_local"]);
}

#[test]
fn what_only_looks_like_a_use_is_not() {
    let innocent = r##"
        // std::fs::read, unsafe
        /* std::env /* nested */ unsafe */
        //! std::thread
        use std::{fmt, time::Duration};
        #![deny(unsafe_code)]
        const A: &str = "std::fs \" unsafe";
        const B: &str = r#"unsafe " std::env"#;
        const C: char = '"';
        fn f<'a>(x: &'a str) -> &'static str { my::fs::read(); x }
        static TABLE: [u8; 2] = [0; 2];
    "##;
    assert_eq!(uses(innocent), [""; 0]);
}

#[test]
fn tests_may_do_what_they_need() {
    let text = "
fn a() {}
#[cfg(test)]
use std::fs;
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Journal { x: std::fs::File }
fn b() { std::env::args(); }
#[cfg(test)]
mod tests {
    fn c() { unsafe { std::thread::spawn(d); } }
}
";
    assert_eq!(uses(text), ["8 std::env::args"]);
    assert_eq!(Source::new(text).production_lines(), 8);
}
