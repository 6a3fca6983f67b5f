// SPDX-License-Identifier: Apache-2.0
//! bzImages and initial RAM disks that are wrong in one place: a real setup header with a field overwritten.
//!
//! Offsets are those of Documentation/arch/x86/boot.rst. The header is that of Debian's 6.12 cloud kernel.

use std::fs::{self, File};

use libtest_mimic::Trial;

use crate::bad_input::refused;
use crate::monitor::Monitor;
use crate::pause_loops::software_kvm;
use crate::{kvm, nothing, trial};

const HEADER: &str = include_str!("../../vmm/src/boot/corpus/debian-6.12-cloud.hex");
const HEADER_OFFSET: usize = 0x1F1;
const SYSSIZE: usize = 0x1F4;
const JUMP: usize = 0x201;
const VERSION: usize = 0x206;
const LOADFLAGS: usize = 0x211;
const ALIGNMENT: usize = 0x230;
const RELOCATABLE: usize = 0x234;
const XLOADFLAGS: usize = 0x236;
const PAYLOAD_LENGTH: usize = 0x24C;
const PREF_ADDRESS: usize = 0x258;
const INIT_SIZE: usize = 0x260;
/// As much code as the header is made to speak of.
const CODE_BYTES: usize = 0x4000;

/// A name, what is written where, and what the error must say.
type Lie = (&'static str, &'static [(usize, &'static [u8])], &'static [&'static str]);

const LIES: &[Lie] = &[
    ("code_past_its_end", &[(SYSSIZE, &[0xFF; 3])], &["protected-mode code goes up to", "truncated"]),
    ("payload_past_its_end", &[(PAYLOAD_LENGTH, &[0xFF; 4])], &["compressed payload goes up to", "truncated"]),
    ("a_header_that_is_too_short", &[(JUMP, &[0x10])], &["setup header ends at 0x212", "damaged"]),
    ("an_old_protocol", &[(VERSION, &[4, 2])], &["boot protocol 2.04", "2.12 (Linux 3.8) or later"]),
    ("a_zimage", &[(LOADFLAGS, &[0])], &["zImage", "build a bzImage"]),
    ("a_32_bit_kernel", &[(XLOADFLAGS, &[0, 0])], &["no 64-bit entry point", "32-bit kernel"]),
    ("an_alignment_of_3", &[(ALIGNMENT, &[3, 0, 0, 0])], &["aligned to 0x3", "damaged"]),
    ("an_init_size_of_1", &[(INIT_SIZE, &[1, 0, 0, 0])], &["claims to run in 0x1 bytes", "init_size"]),
    ("a_place_at_0", &[(PREF_ADDRESS, &[0; 8])], &["wants to be at 0x0", "boot tables'"]),
    (
        "a_place_at_2_to_the_63",
        &[(PREF_ADDRESS, &[0, 0, 0, 0, 0, 0, 0, 0x80])],
        &["0x8000000000000000", "not all is RAM"],
    ),
    (
        "a_kernel_that_cannot_be_moved",
        &[(RELOCATABLE, &[0]), (PREF_ADDRESS, &[0, 0, 0, 0x40, 0, 0, 0, 0])],
        &["cannot be moved", "0x40000000", "CONFIG_RELOCATABLE=y"],
    ),
];

/// A name, the bytes that are left, and what the error must say.
const CUT: [(&str, usize, &str); 3] = [
    ("its_header", 0x240, "ends inside its setup header"),
    ("its_real_mode_code", 0x2000, "real-mode code takes"),
    ("its_code", 0x8000, "protected-mode code goes up to"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let lies = LIES.iter().map(|&(name, changes, parts)| {
        trial(format!("refused_bzimage_{name}"), kvm, move || kernel(&with(changes), parts))
    });
    let cut = CUT.map(|(name, bytes, part)| {
        trial(format!("refused_bzimage_cut_in_{name}"), kvm, move || kernel(&bzimage()[..bytes], &[part, "truncated"]))
    });
    let foreign = foreign().map(|(name, image, parts)| {
        trial(format!("refused_kernel_that_is_{name}"), kvm, move || kernel(&image, parts))
    });
    let rest = [
        trial("refused_an_initrd_larger_than_memory", kvm, large_initrd),
        trial("refused_an_initrd_that_is_a_directory", nothing, directory),
        trial("refused_a_command_line_with_a_nul", nothing, nul),
        trial("refused_a_command_line_longer_than_the_kernel_reads", kvm, long_command_line),
        trial("where_a_kernel_cannot_run_that_is_said_before_and_after", software_kvm, not_emulated),
    ];
    lies.chain(cut).chain(foreign).chain(rest).collect()
}

fn bzimage() -> Vec<u8> {
    let lines = HEADER.lines().filter(|line| !line.starts_with('#'));
    let header: Vec<u8> =
        lines.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut image = vec![0; (usize::from(header[0]) + 1) * 512];
    image[HEADER_OFFSET..HEADER_OFFSET + header.len()].copy_from_slice(&header);
    image.resize(image.len() + CODE_BYTES, 0xCC);
    let paragraphs = u32::try_from(CODE_BYTES / 16).unwrap();
    image[SYSSIZE..SYSSIZE + 4].copy_from_slice(&paragraphs.to_le_bytes());
    image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&0x2000u32.to_le_bytes());
    image
}

fn with(changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut image = bzimage();
    for (at, bytes) in changes {
        image[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

fn foreign() -> [(&'static str, Vec<u8>, &'static [&'static str]); 5] {
    let mut arm64 = vec![0; 1024];
    arm64[56..60].copy_from_slice(b"ARMd");
    let mut arm = vec![0; 1024];
    arm[0x24..0x28].copy_from_slice(&0x016F_2818u32.to_le_bytes());
    [
        ("a_gzip", [&b"\x1F\x8B\x08"[..], &[0; 600]].concat(), &["gzip stream", "unpack it first"]),
        ("for_arm64", arm64, &["arm64 kernel", "x86-64"]),
        ("for_arm", arm, &["32-bit ARM kernel", "x86-64"]),
        ("for_efi_alone", [&b"MZ\0\0zimg"[..], &[0; 600]].concat(), &["EFI firmware", "bzImage"]),
        ("an_initrd", [&b"070701"[..], &[b'0'; 600]].concat(), &["cpio archive", "change places"]),
    ]
}

fn kernel(image: &[u8], parts: &[&str]) {
    let monitor = Monitor::new(["--kernel=kernel", "--memory=256M"]);
    fs::write(monitor.directory().join("kernel"), image).unwrap();
    let ended = refused(monitor, 1, parts, &["kernel"]);
    assert!(ended.errors.contains("vmm: kernel: "), "{} should name the file", ended.errors);
}

fn large_initrd() {
    let monitor = Monitor::new(["--kernel=kernel", "--initrd=initrd", "--memory=256M"]);
    fs::write(monitor.directory().join("kernel"), bzimage()).unwrap();
    // It has no blocks on the disk.
    File::create(monitor.directory().join("initrd")).unwrap().set_len(3 << 30).unwrap();
    refused(monitor, 1, &["initrd initrd", "0xc0000000 bytes", "more --memory"], &["initrd", "kernel"]);
}

fn directory() {
    let monitor = Monitor::new(["--kernel=kernel", "--initrd=initrd"]);
    fs::write(monitor.directory().join("kernel"), bzimage()).unwrap();
    fs::create_dir(monitor.directory().join("initrd")).unwrap();
    refused(monitor, 2, &["--initrd initrd", "is a directory"], &["initrd", "kernel"]);
}

fn nul() {
    let monitor = Monitor::new(["--config=vm.toml"]);
    fs::write(monitor.directory().join("kernel"), bzimage()).unwrap();
    let text = "kernel = \"kernel\"\ncmdline = \"a\\u0000b\"\n";
    fs::write(monitor.directory().join("vm.toml"), text).unwrap();
    refused(monitor, 2, &["--cmdline", "control character", "remove it"], &["kernel", "vm.toml"]);
}

fn long_command_line() {
    let text = format!("--cmdline={}", "a".repeat(2048));
    let monitor = Monitor::new(["--kernel=kernel", "--memory=256M", &text]);
    fs::write(monitor.directory().join("kernel"), bzimage()).unwrap();
    refused(monitor, 1, &["2048 bytes", "reads 2047", "shorten it"], &["kernel"]);
}

/// A kernel whose first instruction, FLD1, is none that KVM's instruction emulator knows.
fn not_emulated() {
    const ENTRY_64: usize = 0x200;
    let mut image = bzimage();
    let entry = image.len() - CODE_BYTES + ENTRY_64;
    image[entry..entry + 2].copy_from_slice(&[0xD9, 0xE8]);
    let monitor = Monitor::new(["--kernel=kernel", "--memory=256M"]);
    fs::write(monitor.directory().join("kernel"), image).unwrap();
    let before = ["warning: this host's KVM is software-virtualised", "kernel is tried all the same"];
    let after = [
        "cannot emulate the instruction d9 e8",
        "at RIP 0x1000200",
        "`vmm host` tells which kind",
        "`vmm lab -- ARGS...`",
    ];
    refused(monitor, 1, &[&before[..], &after].concat(), &["kernel"]);
}
