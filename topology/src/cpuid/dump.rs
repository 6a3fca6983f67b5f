// SPDX-License-Identifier: Apache-2.0
//! CPUID as text, in the format that `cpuid -r` prints and `cpuid -f` reads.
//!
//! A host's dump can be handed to a test, and a guest's leaves to a tool that knows nothing of this project. Invariant:
//! what is written reads back as the same entries.

use std::fmt::Write;

use thiserror::Error;

use crate::cpuid::CpuidEntry;

/// Leaves whose subleaf has a meaning, which the format does not say (SDM and APM, instruction CPUID).
const INDEXED: [u32; 20] = [
    4,
    7,
    0xB,
    0xD,
    0xF,
    0x10,
    0x12,
    0x14,
    0x17,
    0x18,
    0x1B,
    0x1D,
    0x1E,
    0x1F,
    0x20,
    0x23,
    0x24,
    0x8000_001D,
    0x8000_0020,
    0x8000_0026,
];

/// Why a text is no dump.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DumpError {
    /// A line is neither `CPU n:` nor a leaf.
    #[error(
        "line {line} of a CPUID dump is neither `CPU n:` nor `0xLEAF 0xSUBLEAF: eax=0x.. ebx=0x.. ecx=0x.. edx=0x..`"
    )]
    NotALeaf {
        /// The line, from 1.
        line: usize,
    },
    /// A leaf stands before the first `CPU n:`.
    #[error("line {line} of a CPUID dump is a leaf before the first `CPU n:`")]
    NoCpu {
        /// The line, from 1.
        line: usize,
    },
}

/// Writes the entries of all CPUs.
#[must_use]
pub fn write_dump(cpus: &[Vec<CpuidEntry>]) -> String {
    let mut text = String::new();
    for (cpu, entries) in cpus.iter().enumerate() {
        let _ = writeln!(text, "CPU {cpu}:");
        for CpuidEntry { function, index, eax, ebx, ecx, edx, .. } in entries {
            let registers = format!("eax={eax:#010x} ebx={ebx:#010x} ecx={ecx:#010x} edx={edx:#010x}");
            let _ = writeln!(text, "   {function:#010x} {index:#04x}: {registers}");
        }
    }
    text
}

/// Reads the entries of all CPUs of a dump.
///
/// # Errors
/// The first line that does not belong in a dump.
pub fn parse_dump(text: &str) -> Result<Vec<Vec<CpuidEntry>>, DumpError> {
    let mut cpus: Vec<Vec<CpuidEntry>> = Vec::new();
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        if content.is_empty() {
            continue;
        }
        if content.starts_with("CPU") && content.ends_with(':') {
            cpus.push(Vec::new());
            continue;
        }
        let entry = parse_leaf(content).ok_or(DumpError::NotALeaf { line })?;
        cpus.last_mut().ok_or(DumpError::NoCpu { line })?.push(entry);
    }
    Ok(cpus)
}

fn parse_leaf(line: &str) -> Option<CpuidEntry> {
    let mut words = line.split_ascii_whitespace();
    let function = hex(words.next()?)?;
    let index = hex(words.next()?.strip_suffix(':')?)?;
    let mut register = |name: &str| hex(words.next()?.strip_prefix(name)?.strip_prefix('=')?);
    let (eax, ebx, ecx, edx) = (register("eax")?, register("ebx")?, register("ecx")?, register("edx")?);
    let end = words.next().is_none();
    end.then_some(CpuidEntry { function, index, indexed: INDEXED.contains(&function), eax, ebx, ecx, edx })
}

fn hex(word: &str) -> Option<u32> {
    u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_tool_prints() {
        let text = "CPU 0:\n   0x00000004 0x02: eax=0x04000143 ebx=0x03c0003f ecx=0x000007ff edx=0x00000000\nCPU 1:\n";
        let cpus = parse_dump(text).unwrap();
        let (eax, ebx, ecx) = (0x0400_0143, 0x03C0_003F, 0x7FF);
        assert_eq!(cpus[0], [CpuidEntry { function: 4, index: 2, indexed: true, eax, ebx, ecx, edx: 0 }]);
        assert_eq!(write_dump(&cpus), text);
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        let leaf = "0x00000001 0x00: eax=0x0 ebx=0x0 ecx=0x0 edx=0x0";
        assert_eq!(parse_dump(leaf), Err(DumpError::NoCpu { line: 1 }));
        for wrong in ["hello", "0x1 0x0: eax=0x0", "0x1 0x0 eax=0x0 ebx=0x0 ecx=0x0 edx=0x0", &format!("{leaf} x")] {
            assert_eq!(parse_dump(&format!("CPU 0:\n{wrong}")), Err(DumpError::NotALeaf { line: 2 }), "{wrong}");
        }
    }
}
