// SPDX-License-Identifier: Apache-2.0
//! What somebody who wrote an unknown name may have meant.

/// Longest name that is compared: the cost is in the product of the lengths.
const LONGEST: usize = 64;

/// The known name nearest to `written`, if one is near enough to be meant.
#[must_use]
pub fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    if written.len() > LONGEST {
        return None;
    }
    let scored = known.iter().map(|name| (strsim::damerau_levenshtein(written, name), *name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len().max(written.len()) / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_guess_is_not_made() {
        let known = ["mode", "mechanism", "parameters"];
        assert_eq!(nearest("moed", &known), Some("mode"));
        assert_eq!(nearest("mechanisms", &known), Some("mechanism"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest(&"m".repeat(100_000), &known), None);
    }
}
