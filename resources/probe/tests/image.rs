// SPDX-License-Identifier: Apache-2.0
//! What the image promises its loader, and that its hot loops stay within an emulated ring 0.
//!
//! Reads instructions with `objdump`, which is where the linker that built the image is (Debian: binutils).

#![expect(clippy::unwrap_used, reason = "an integration test: a failed unwrap is a failed test")]

use std::path::Path;
use std::process::Command;

use probe::IMAGE;

fn word(offset: usize, len: usize) -> usize {
    let mut bytes = [0; 8];
    bytes[..len].copy_from_slice(&IMAGE[offset..offset + len]);
    usize::try_from(u64::from_le_bytes(bytes)).unwrap()
}

/// Offsets of the program headers of a type (ELF-64 object file format, version 1.5, figure 6).
fn program_headers(kind: usize) -> Vec<usize> {
    let (start, size, count) = (word(32, 8), word(54, 2), word(56, 2));
    (0..count).map(|i| start + i * size).filter(|header| word(*header, 4) == kind).collect()
}

#[test]
fn it_is_an_executable_that_is_small_and_loaded_from_1_mib_on() {
    assert_eq!(IMAGE[..6], *b"\x7fELF\x02\x01");
    assert_eq!((word(16, 2), word(18, 2)), (2, 62), "ET_EXEC for x86-64");
    let loads = program_headers(1);
    let end = loads.iter().map(|header| word(header + 24, 8) + word(header + 40, 8)).max().unwrap();
    assert_eq!(loads.iter().map(|header| word(header + 24, 8)).min(), Some(0x10_0000));
    assert!(end < 0x14_0000, "ends at {end:#x}: 256 KiB are enough");
    assert!(loads.iter().any(|header| (0..word(header + 32, 8)).contains(&(word(24, 8) - word(header + 24, 8)))));
}

#[test]
fn its_only_note_is_the_pvh_entry() {
    let [note] = program_headers(4)[..] else { panic!("not one PT_NOTE") };
    let (at, len) = (word(note + 8, 8), word(note + 32, 8));
    assert_eq!((word(at, 4), word(at + 4, 4), word(at + 8, 4), len), (4, 8, 18, 24));
    assert_eq!(IMAGE[at + 12..at + 16], *b"Xen\0");
    assert!((0x10_0000..0x11_0000).contains(&word(at + 16, 8)));
}

/// The instructions between the symbols that link.ld puts around the hot loops, as `(line, mnemonic, operands)`.
fn hot_instructions() -> Vec<(String, String, String)> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe.elf");
    std::fs::write(&file, IMAGE).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&file).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (Debian: binutils) cannot be run: {error}"));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = run("nm", &[]);
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        format!("0x{}", &line[..16])
    };
    let (from, to) = (address("probe_hot_start"), address("probe_hot_end"));
    let range = [format!("--start-address={from}"), format!("--stop-address={to}")];
    let text = run("objdump", &["-d", "--no-show-raw-insn", &range[0], &range[1]]);
    let instructions = text.lines().filter_map(|line| line.split_once(":\t").map(|(_, code)| (line, code.trim())));
    instructions
        .map(|(line, code)| {
            let (mnemonic, operands) = code.split_once(' ').unwrap_or((code, ""));
            (line.to_owned(), mnemonic.to_owned(), operands.trim().to_owned())
        })
        .collect()
}

/// Registers and instructions that KVM's emulator does not know in ring 0 (measured; README.md, "How it works").
const BEYOND_RING_0: [&str; 6] = ["%xmm", "%ymm", "%zmm", "%mm", "%st", "%k"];
const NOT_EMULATED: [&str; 16] = [
    "popcnt",
    "lzcnt",
    "tzcnt",
    "andn",
    "bextr",
    "blsi",
    "blsr",
    "mulx",
    "rorx",
    "sarx",
    "shlx",
    "shrx",
    "cmpxchg16b",
    "fwait",
    "xrstor",
    "ud2",
];

#[test]
fn hot_loops_stay_within_an_emulated_ring_0() {
    let instructions = hot_instructions();
    assert!(instructions.len() > 300, "only {} instructions: the hot section was not found", instructions.len());
    let offends = |(_, mnemonic, operands): &&(String, String, String)| {
        NOT_EMULATED.contains(&mnemonic.as_str()) || BEYOND_RING_0.iter().any(|register| operands.contains(register))
    };
    let offenders: Vec<_> = instructions.iter().filter(offends).map(|(line, ..)| line).collect();
    assert!(offenders.is_empty(), "{offenders:#?}");
}

#[test]
fn hot_loops_call_nothing_but_the_service_and_each_other() {
    let instructions = hot_instructions();
    let known = ["<probe_service>", "<memcpy>", "<memset>", "probe_guest8workload"];
    let strange = |(_, mnemonic, operands): &&(String, String, String)| {
        mnemonic.starts_with("call") && !known.iter().any(|name| operands.contains(name))
    };
    let offenders: Vec<_> = instructions.iter().filter(strange).map(|(line, ..)| line).collect();
    assert!(offenders.is_empty(), "{offenders:#?}");
    assert!(instructions.iter().any(|(_, _, operands)| operands.contains("<memcpy>")), "ebizzy copies its records");
}
