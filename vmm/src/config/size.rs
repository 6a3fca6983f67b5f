// SPDX-License-Identifier: Apache-2.0
//! An amount of memory as people write it: `4G`.
//!
//! Pure. Suffixes are powers of 1024, printing uses the greatest suffix that divides the amount, so that what is
//! printed reads back as the same number of bytes.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use super::ValueError;

const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// A number of bytes. Any value; whether it makes sense as memory is decided when the machine is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let last = text.chars().next_back().map(|letter| letter.to_ascii_uppercase());
        let shift = SUFFIXES.iter().find(|(letter, _)| Some(*letter) == last).map_or(0, |(_, shift)| *shift);
        let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ValueError::Size { value: text.to_owned() });
        }
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| ValueError::SizeOverflow { value: text.to_owned() })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match SUFFIXES.iter().find(|(_, shift)| divides(*shift)) {
            Some((letter, shift)) => write!(f, "{}{letter}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl Visitor<'_> for Size {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or a size such as \"512M\"")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("1K", 1 << 10), ("512m", 512 << 20), ("4G", 4 << 30), ("2T", 2 << 40)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "4GB", "4 G", "-1", "1.5G", "0x10", "4é", "é", "１"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ValueError::Size { value: text.to_owned() }), "{text}");
        }
        for text in ["16777216T", "18446744073709551616"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ValueError::SizeOverflow { value: text.to_owned() }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(number in any::<u64>(), shift in 0u32..64) {
            let size = ByteSize(number << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn any_text_is_borne(text in ".*") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
