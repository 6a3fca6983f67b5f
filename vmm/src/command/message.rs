// SPDX-License-Identifier: Apache-2.0
//! Messages of a length that a person reads, whatever values they repeat.
//!
//! Pure. Every message that ends a command goes through here, so no error has to shorten what it names.

/// Characters of a word, or of a stretch of words, that stay whole: more than a long path or list has.
const WORD: usize = 512;
const WHOLE: usize = 4096;

/// Whether [`shorten`] would take anything away from a message.
pub(super) fn is_long(text: &str) -> bool {
    text.len() > WHOLE || text.split_whitespace().any(|word| word.len() > WORD)
}

/// Takes the middle out of words, and of a whole, that are too long; beginning and end say what and why.
pub(super) fn shorten(text: &str) -> String {
    if !is_long(text) {
        return text.to_owned();
    }
    let words: String = text.split_inclusive(char::is_whitespace).map(|word| without_middle(word, WORD)).collect();
    without_middle(&words, WHOLE)
}

/// At most `most` characters of a text and a word about the rest.
fn without_middle(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most / 2).collect();
    let tail: String = text.chars().skip(count - most / 4).collect();
    format!("{head}[... {} characters ...]{tail}", count - most / 2 - most / 4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_wrong_and_what_to_do_stay_whole() {
        for value in ["x".repeat(500_000), "x ".repeat(250_000), "\u{e9}".repeat(9_000)] {
            let text = shorten(&format!("vmm: --memory: `{value}` is not a size; write 512M\n"));
            assert!(text.starts_with("vmm: --memory: `") && text.ends_with("is not a size; write 512M\n"), "{text}");
            assert!(text.len() < 2 * WHOLE && text.contains("characters ...]"), "{text}");
        }
    }

    #[test]
    fn a_usual_message_is_left_alone() {
        let text = "vmm: --memory: `x` is not a size;\n  write 512M\n";
        assert_eq!(shorten(text), text);
    }

    proptest! {
        #[test]
        fn no_text_stays_long(text in "(?s).{0,20}", times in 0_usize..2_000) {
            prop_assert!(shorten(&text.repeat(times)).chars().count() <= WHOLE + 64);
        }
    }
}
