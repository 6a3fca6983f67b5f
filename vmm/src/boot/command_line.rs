// SPDX-License-Identifier: Apache-2.0
//! The kernel's command line: checked against what its reader takes, written where every boot protocol points to.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use crate::layout;

/// Longest command line of an x86 Linux whose image does not state a limit of its own, in bytes without the NUL
/// (arch/x86/include/asm/setup.h, `COMMAND_LINE_SIZE`).
pub const LINUX_DEFAULT_BYTES: usize = 2047;

/// The command line could not be handed over.
#[derive(Debug, thiserror::Error)]
pub enum CommandLineError {
    /// A NUL would end the command line early.
    #[error("the kernel command line has a NUL byte at position {position}: remove it")]
    Nul {
        /// Where, counted from 0.
        position: usize,
    },
    /// Longer than the kernel reads: it would cut the rest off without a word.
    #[error("the kernel command line has {bytes} bytes, this kernel reads {limit}; shorten it")]
    Length {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// It does not fit into guest memory.
    #[error("the kernel command line does not fit into the guest's RAM: {0}; give it more --memory")]
    Write(#[source] GuestMemoryError),
}

/// Writes `text` and its NUL to [`layout::COMMAND_LINE`]; `kernel_limit` is what the kernel reads, in bytes without NUL.
///
/// # Errors
/// [`CommandLineError`]; nothing is written then.
pub fn write(memory: &GuestMemoryMmap, text: &str, kernel_limit: usize) -> Result<(), CommandLineError> {
    if let Some(position) = text.bytes().position(|byte| byte == 0) {
        return Err(CommandLineError::Nul { position });
    }
    let limit = kernel_limit.min(layout::COMMAND_LINE_BYTES - 1);
    if text.len() > limit {
        return Err(CommandLineError::Length { bytes: text.len(), limit });
    }
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    memory.write_slice(&bytes, GuestAddress(layout::COMMAND_LINE)).map_err(CommandLineError::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap()
    }

    #[test]
    fn as_long_as_the_kernel_reads_and_no_longer() {
        let text = "x".repeat(LINUX_DEFAULT_BYTES);
        assert!(write(&memory(), &text, LINUX_DEFAULT_BYTES).is_ok());
        let error = write(&memory(), &format!("{text}y"), LINUX_DEFAULT_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "the kernel command line has 2048 bytes, this kernel reads 2047; shorten it");
        let room = "x".repeat(layout::COMMAND_LINE_BYTES);
        assert!(matches!(write(&memory(), &room, usize::MAX), Err(CommandLineError::Length { limit: 65535, .. })));
    }

    #[test]
    fn it_ends_with_a_nul_and_holds_none() {
        let memory = memory();
        write(&memory, "quiet", 10).unwrap();
        let mut bytes = [0xFF; 6];
        memory.read_slice(&mut bytes, GuestAddress(layout::COMMAND_LINE)).unwrap();
        assert_eq!(&bytes, b"quiet\0");
        assert!(matches!(write(&memory, "a\0b", 10), Err(CommandLineError::Nul { position: 1 })));
    }
}
