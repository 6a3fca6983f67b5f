// SPDX-License-Identifier: Apache-2.0
//! Builds the programs that go into a Linux guest with the compiler that builds the workspace.
//!
//! They are embedded in this crate, so they cannot be Cargo targets of it. Invariant: only this directory, the compiler and
//! the C compiler as linker driver are used; the programs are static, for a guest need not have libraries for them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The one target whose standard library is surely installed: the host's.
const TARGET: &str = "x86_64-unknown-linux-gnu";

const CODE_OPTIONS: [&str; 7] = [
    "target-feature=+crt-static",
    "relocation-model=static",
    "panic=abort",
    "opt-level=2",
    "lto=fat",
    "codegen-units=1",
    "strip=symbols",
];

fn main() {
    println!("cargo::rerun-if-changed=agent");
    println!("cargo::rerun-if-changed=ebizzy");
    println!("cargo::rerun-if-changed=src");
    let target = env::var("TARGET").unwrap_or_default();
    assert!(target.starts_with("x86_64-"), "guests are x86-64, and the build is for `{target}`");
    for program in ["agent", "ebizzy"] {
        build(program);
    }
}

fn build(program: &str) {
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("invariant: Cargo sets OUT_DIR"));
    let mut rustc = Command::new(env::var_os("RUSTC").expect("invariant: Cargo sets RUSTC"));
    rustc.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    rustc.arg(format!("{program}/main.rs")).args(["--crate-name", program, "--crate-type", "bin", "--edition", "2024"]);
    rustc.args(["--target", TARGET]).arg("-o").arg(directory.join(program));
    rustc.args(CODE_OPTIONS.iter().flat_map(|option| ["-C", option]));
    rustc.arg("-C").arg(format!("linker={}", env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned())));
    let status = rustc.status().expect("the compiler that builds the workspace could not be run for a guest's program");
    assert!(status.success(), "{program} does not build: {status}");
}
