// SPDX-License-Identifier: Apache-2.0
//! Builds the probe guest with the compiler that builds the workspace, for the target that is installed anyway.
//!
//! The guest is a program without an operating system, so it is not a Cargo target: it must not take the workspace's
//! profiles and flags. Invariant: only this directory, the compiler and the C compiler as linker driver are used.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The one target whose `core` is surely installed: the host's.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Whatever is linked is in the image: no library, no start files, no position independence, our layout.
const LINK_ARGUMENTS: [&str; 8] = [
    "-nostdlib",
    "-nostartfiles",
    "-static",
    "-no-pie",
    "-Wl,-T,guest/link.ld",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
    "-Wl,-z,max-page-size=4096",
];

/// No red zone: handlers entered from ring 0 stay on the stack. No unwinding: nothing catches.
const CODE_OPTIONS: [&str; 12] = [
    "panic=abort",
    "opt-level=2",
    "codegen-units=1",
    "relocation-model=static",
    "code-model=small",
    "no-redzone=yes",
    "force-unwind-tables=no",
    "debuginfo=0",
    "strip=debuginfo",
    "relro-level=off",
    "default-linker-libraries=no",
    "overflow-checks=no",
];

fn main() {
    for path in ["guest", "src/record.rs", "src/value.rs", "src/command_line.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let target = env::var("TARGET").unwrap_or_default();
    assert!(target.starts_with("x86_64-"), "the probe guest is x86-64 code, and the build is for `{target}`");
    let image = PathBuf::from(env::var_os("OUT_DIR").expect("invariant: Cargo sets OUT_DIR")).join("probe.elf");
    let mut rustc = Command::new(env::var_os("RUSTC").expect("invariant: Cargo sets RUSTC"));
    rustc.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(["guest/main.rs", "--crate-name", "probe_guest", "--crate-type", "bin", "--edition", "2024"]);
    rustc.args(["--target", TARGET]).arg("-o").arg(&image);
    rustc.args(CODE_OPTIONS.iter().flat_map(|option| ["-C", option]));
    rustc.arg("-C").arg(format!("linker={}", env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned())));
    for argument in LINK_ARGUMENTS {
        rustc.arg("-C").arg(format!("link-arg={argument}"));
    }
    let status = rustc.status().expect("the compiler that builds the workspace could not be run for the probe guest");
    assert!(status.success(), "the probe guest does not build: {status}");
}
