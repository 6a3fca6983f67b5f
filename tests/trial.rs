// SPDX-License-Identifier: Apache-2.0
//! A test that a machine may be unable to run: then it is reported as ignored, with the reason, and never as passed.
//!
//! Part of every test program that needs more than a compiler.

use std::fs::OpenOptions;

use libtest_mimic::{Completion, Trial};

/// What this machine cannot show, in words.
pub(crate) type Missing = Option<String>;

/// A test that needs what `missing` looks for. It fails by panicking, as any test does.
pub(crate) fn trial(
    name: impl Into<String>,
    missing: impl Fn() -> Missing + Send + 'static,
    test: impl FnOnce() + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match missing() {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => {
            test();
            Ok(Completion::Completed)
        }
    })
}

/// For tests that start a guest.
pub(crate) fn kvm() -> Missing {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.err().map(|error| format!("/dev/kvm cannot be opened: {error}"))
}
