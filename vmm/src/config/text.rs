// SPDX-License-Identifier: Apache-2.0
//! The grammar all composite flags share: `word,key=value,key=[list]`.
//!
//! Pure. A comma inside brackets belongs to the value. Nothing is trimmed: a blank in a flag is an error of the value
//! it stands in.

use super::ValueError;
use super::nearest::nearest;

/// Splits at the commas that are outside brackets. Brackets do not nest.
pub(crate) fn split(text: &str) -> Result<Vec<&str>, ValueError> {
    let brackets = || ValueError::Brackets { value: text.to_owned() };
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err(brackets()),
            b']' if !inside => return Err(brackets()),
            b'[' | b']' => inside = !inside,
            b',' if !inside => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(brackets());
    }
    words.push(&text[start..]);
    Ok(words)
}

/// Splits `key=value` and finds the key among `known`: the index of the key, and the value.
pub(crate) fn key_value<'a>(word: &'a str, known: &[&str]) -> Result<(usize, &'a str), ValueError> {
    let (key, value) = word
        .split_once('=')
        .ok_or_else(|| ValueError::NotKeyValue { word: word.to_owned(), known: known.join(", ") })?;
    match known.iter().position(|name| *name == key) {
        Some(index) => Ok((index, value)),
        None => Err(unknown_key(key, known)),
    }
}

/// Puts `value` where nothing is yet.
pub(crate) fn set_once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), ValueError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ValueError::RepeatedKey { key: key.to_owned() }),
    }
}

/// A whole number of decimal digits, from `min` to `max`.
pub(crate) fn number(text: &str, min: u32, max: u32) -> Result<u32, ValueError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(number) if digits && (min..=max).contains(&number) => Ok(number),
        _ => Err(ValueError::Number { value: text.to_owned(), min, max }),
    }
}

pub(crate) fn unknown_key(key: &str, known: &[&str]) -> ValueError {
    let nearest = nearest(key, known.iter().copied()).map(str::to_owned);
    ValueError::UnknownKey { key: key.to_owned(), nearest, known: known.join(", ") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commas_in_brackets_do_not_split() {
        assert_eq!(split("a,b=[1,2],c"), Ok(vec!["a", "b=[1,2]", "c"]));
        assert_eq!(split(""), Ok(vec![""]));
        assert_eq!(split("a,"), Ok(vec!["a", ""]));
        for wrong in ["[", "]", "[[1]]", "a=[1", "a=1]"] {
            assert_eq!(split(wrong), Err(ValueError::Brackets { value: wrong.to_owned() }));
        }
    }

    #[test]
    fn numbers_have_digits_only() {
        assert_eq!(number("0032", 0, 32), Ok(32));
        for wrong in ["", "+1", "-1", " 1", "1 ", "0x1", "33", "4294967296", "١"] {
            assert!(number(wrong, 0, 32).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn splitting_loses_nothing(text in "[a-z0-9=,\\[\\]é]*") {
            if let Ok(words) = split(&text) {
                prop_assert_eq!(words.join(","), text);
            }
        }
    }
}
