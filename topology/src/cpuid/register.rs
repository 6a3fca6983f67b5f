// SPDX-License-Identifier: Apache-2.0
//! Bit ranges of a register, checked for width.
//!
//! Every write of a leaf goes through here. Invariant: a write touches no bit outside its range.

/// Writes `value` to bits `hi..=lo` of a register; a value that is too wide is stated as the largest that fits, which is
/// what hardware does with counts that outgrew their field.
pub(super) fn set(register: &mut u32, hi: u32, lo: u32, value: u32) {
    let mask = mask(hi, lo);
    *register = (*register & !(mask << lo)) | (value.min(mask) << lo);
}

/// Sets or clears one bit.
pub(super) fn set_bit(register: &mut u32, bit: u32, value: bool) {
    set(register, bit, bit, u32::from(value));
}

/// Bits `hi..=lo` of a register.
pub(super) const fn get(register: u32, hi: u32, lo: u32) -> u32 {
    (register >> lo) & mask(hi, lo)
}

const fn mask(hi: u32, lo: u32) -> u32 {
    u32::MAX >> (31 - (hi - lo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_touches_its_range_only() {
        let mut register = u32::MAX;
        set(&mut register, 15, 8, 0x12);
        assert_eq!(register, 0xFFFF_12FF);
        set(&mut register, 31, 0, 7);
        assert_eq!(register, 7);
        set_bit(&mut register, 31, true);
        assert_eq!((register, get(register, 31, 31), get(register, 2, 1)), (0x8000_0007, 1, 3));
    }

    #[test]
    fn a_value_too_wide_becomes_the_largest() {
        let mut register = 0;
        set(&mut register, 31, 26, 100);
        assert_eq!(register, 0xFC00_0000);
    }
}
