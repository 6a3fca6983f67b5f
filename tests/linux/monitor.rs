// SPDX-License-Identifier: Apache-2.0
//! Finds the monitor that is tested: the one that `VMM=PATH` names, else it is built as this test was.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The monitor's path.
pub(crate) fn path() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("VMM").map_or_else(build, PathBuf::from)).clone()
}

fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "vmm", "--bin", "vmm"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let built = cargo.status().is_ok_and(|status| status.success());
    assert!(built, "the monitor cannot be built; build it and name it with VMM=PATH");
    // TARGET/PROFILE/deps/linux-HASH is this test.
    let test = std::env::current_exe().expect("a running program has a path");
    test.ancestors().nth(2).expect("it lies in deps").join("vmm")
}
