// SPDX-License-Identifier: Apache-2.0
//! The values in the probe guest's lines: how each is printed and read.
//!
//! Invariant: what a value prints has no spaces and is never empty, and is read back as the same value. Compiled into
//! the guest too, so it needs nothing but `core`.

use core::fmt;

/// A value of a field: how it is printed and read.
pub trait Value: Sized {
    /// Prints it, without spaces.
    ///
    /// # Errors
    /// Those of the formatter.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    /// Reads it; `None` if the text is not such a value.
    fn read(text: &str) -> Option<Self>;
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Value for $number {
            fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
            fn read(text: &str) -> Option<Self> {
                // A sign is not part of a number here, though `parse` takes one.
                text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
            }
        }
    )*};
}
number!(u8, u32, u64);

impl Value for bool {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "yes" } else { "no" })
    }
    fn read(text: &str) -> Option<Self> {
        match text {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }
}

impl<T: Value> Value for Option<T> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Some(value) => value.print(f),
            None => f.write_str("-"),
        }
    }
    fn read(text: &str) -> Option<Self> {
        if text == "-" { Some(None) } else { T::read(text).map(Some) }
    }
}

/// A ratio in thousandths, printed with three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Milli(pub u64);

impl Milli {
    /// `part / whole`, rounded down; `None` of nothing, or if the ratio leaves the range.
    #[must_use]
    pub fn ratio(part: u64, whole: u64) -> Option<Self> {
        let milli = u128::from(part) * 1000 / u128::from((whole != 0).then_some(whole)?);
        u64::try_from(milli).ok().map(Self)
    }
}

impl Value for Milli {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
    fn read(text: &str) -> Option<Self> {
        let (whole, milli) = text.split_once('.')?;
        let milli: u64 = if milli.len() == 3 { Value::read(milli)? } else { return None };
        <u64 as Value>::read(whole)?.checked_mul(1000)?.checked_add(milli).map(Self)
    }
}

/// A short word: up to 48 visible ASCII characters; others are printed as `?`, an empty word as `?` too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    bytes: [u8; Word::MAX],
    len: u8,
}

impl Word {
    const MAX: usize = 48;

    /// The word made of `text`, cut to its bound.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let mut word = Self { bytes: [b'?'; Self::MAX], len: 0 };
        for (slot, &byte) in word.bytes.iter_mut().zip(text) {
            *slot = if byte.is_ascii_graphic() { byte } else { b'?' };
            word.len += 1;
        }
        word.len = word.len.max(1);
        word
    }

    /// The word as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.len)).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or("?")
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Value for Word {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
    fn read(text: &str) -> Option<Self> {
        (text.len() <= Self::MAX && !text.is_empty()).then(|| Self::new(text.as_bytes()))
    }
}

/// Up to 64 small numbers, printed with commas between them; none at all is printed as `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bytes {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Bytes {
    /// Most numbers there can be.
    pub const MAX: usize = 64;

    /// The first [`Self::MAX`] of `numbers`.
    #[must_use]
    pub fn new(numbers: impl Iterator<Item = u8>) -> Self {
        let mut all = Self { bytes: [0; Self::MAX], len: 0 };
        for (slot, number) in all.bytes.iter_mut().zip(numbers) {
            *slot = number;
            all.len += 1;
        }
        all
    }

    /// The numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Value for Bytes {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.as_slice().split_first() else { return f.write_str("-") };
        first.print(f)?;
        rest.iter().try_for_each(|number| write!(f, ",{number}"))
    }
    fn read(text: &str) -> Option<Self> {
        let numbers = || text.split(',').map(<u8 as Value>::read);
        if text == "-" {
            return Some(Self::new(core::iter::empty()));
        }
        let whole = numbers().count() <= Self::MAX && numbers().all(|number| number.is_some());
        whole.then(|| Self::new(numbers().flatten()))
    }
}

/// An enum whose variants are printed as fixed words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }
        impl $name {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Every variant as it is printed.
            pub const WORDS: &'static [&'static str] = &[$($word),*];
            /// The variant as it is printed.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
            /// The variant printed as `text`, if there is one.
            #[must_use]
            pub fn from_word(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.word() == text)
            }
        }
        impl $crate::value::Value for $name {
            fn print(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.word())
            }
            fn read(text: &str) -> Option<Self> {
                Self::from_word(text)
            }
        }
    };
}
pub(crate) use words;
