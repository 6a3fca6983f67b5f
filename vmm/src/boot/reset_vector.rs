// SPDX-License-Identifier: Apache-2.0
//! The reset vector: what there is of firmware.
//!
//! Linux asked to reboot on a hardware-reduced machine takes EFI for granted (`efi_reboot_required`,
//! drivers/firmware/efi/reboot.c), finds none, and jumps to the BIOS at F000:FFF0 in real mode
//! (`machine_real_restart`, arch/x86/kernel/reboot.c). With nothing there it would run through zeros for ever; what is
//! there writes the ACPI reset register.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

use crate::layout;

/// Real-mode code: `mov dx, RESET_PORT; mov al, RESET_VALUE; out dx, al; hlt; jmp` back to the `hlt`.
const CODE: [u8; 9] = {
    let [low, high] = layout::RESET_PORT.to_le_bytes();
    [0xBA, low, high, 0xB0, layout::RESET_VALUE, 0xEE, 0xF4, 0xEB, 0xFD]
};

/// Writes the reset vector.
///
/// # Errors
/// Guest memory does not reach to 1 MiB.
pub fn write(memory: &GuestMemoryMmap) -> Result<(), GuestMemoryError> {
    memory.write_slice(&CODE, GuestAddress(layout::RESET_VECTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_between_the_vector_and_one_mebibyte_and_names_the_reset_register() {
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        write(&memory).unwrap();
        let code: [u8; 16] = memory.read_obj(GuestAddress(layout::RESET_VECTOR)).unwrap();
        assert_eq!(code[..6], [0xBA, 0x02, 0x06, 0xB0, 0x01, 0xEE], "mov dx, 0x602; mov al, 1; out dx, al");
        let small = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 1 << 16)]).unwrap();
        write(&small).unwrap_err();
    }
}
