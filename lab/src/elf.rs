// SPDX-License-Identifier: Apache-2.0
//! Whether a program can run where there are no libraries.
//!
//! Place in the flow: looked at before a program goes into the lab, because the shell inside would only say "not found".
//! Invariant: reads within the bytes it is given; anything that is not an ELF program (a script) needs no dynamic linker.
//! Source: System V ABI, "ELF Header" and "Program Header" (64-bit, little-endian).

const PT_INTERP: u32 = 3;
const PROGRAM_HEADER_OFFSET: usize = 32;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;

/// True for a 64-bit ELF file with an interpreter segment.
pub(crate) fn wants_a_dynamic_linker(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01") && has_interpreter(bytes).unwrap_or(false)
}

fn has_interpreter(bytes: &[u8]) -> Option<bool> {
    let table = usize::try_from(u64::from_le_bytes(field(bytes, PROGRAM_HEADER_OFFSET)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(field(bytes, PROGRAM_HEADER_SIZE)?));
    let count = usize::from(u16::from_le_bytes(field(bytes, PROGRAM_HEADER_COUNT)?));
    let kind = |index: usize| field(bytes, table.checked_add(index * size)?).map(u32::from_le_bytes);
    Some((0..count).any(|index| kind(index) == Some(PT_INTERP)))
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn program(kind: u32) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(120, 0);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn only_a_program_with_an_interpreter_wants_a_linker() {
        assert!(wants_a_dynamic_linker(&program(PT_INTERP)));
        assert!(!wants_a_dynamic_linker(&program(1)));
        assert!(!wants_a_dynamic_linker(b"#!/bin/sh\n"));
    }

    proptest! {
        #[test]
        fn a_mangled_header_never_panics(at in 0usize..120, value: u8, length in 0usize..120) {
            let mut bytes = program(PT_INTERP);
            bytes[at] = value;
            let cut = wants_a_dynamic_linker(&bytes[..length]);
            prop_assert!(!cut || length > 64);
        }
    }
}
