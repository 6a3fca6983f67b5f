// SPDX-License-Identifier: Apache-2.0
//! Has a release's linker put the functions of a start side by side, so that a start touches few pages of the program
//! (docs/performance.md). `boot-order.ld` is written by `resources/bench/boot-order.sh`.

use std::env;

fn main() {
    const ORDER: &str = "boot-order.ld";
    println!("cargo:rerun-if-changed={ORDER}");
    let of_cargo = |name| env::var(name).unwrap_or_default();
    if of_cargo("PROFILE") == "release" {
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{}/{ORDER}", of_cargo("CARGO_MANIFEST_DIR"));
    }
}
