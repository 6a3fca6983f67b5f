// SPDX-License-Identifier: Apache-2.0
//! Values of headers that carry a decision: the generation of `If-Match`, the media type, the last event seen.

use crate::wire::{Code, Generation, Problem};

/// What `If-Match` allows: any generation, or only one: its entity tag (RFC 9110, section 13.1.1), or its bare number, which a
/// shell loses the quotes of.
///
/// # Errors
/// `bad_header` for everything else, a list and a weak tag included: a weak tag never matches.
pub fn if_match(value: &str) -> Result<Option<Generation>, Problem> {
    let bad = || {
        Problem::new(Code::BadHeader, format!("If-Match: `{}` is not a generation", value.escape_debug()))
            .hint("copy the entity tag of an earlier answer, quotes included, or leave the header out")
    };
    let value = value.trim();
    if value == "*" {
        return Ok(None);
    }
    let digits = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    digits.parse().map(|number| Some(Generation(number))).map_err(|_| bad())
}

/// Whether a media type is JSON.
#[must_use]
pub fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The id of `Last-Event-ID`.
///
/// # Errors
/// `bad_header` for what is no number.
pub fn last_event_id(value: &str) -> Result<u64, Problem> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| value.parse().ok()).flatten().ok_or_else(|| {
        Problem::new(Code::BadHeader, format!("Last-Event-ID: `{}` is not an event's id", value.escape_debug()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_strong_tag_is_a_generation() {
        assert_eq!(if_match("\"17\""), Ok(Some(Generation(17))));
        assert_eq!(if_match("17"), Ok(Some(Generation(17))));
        assert_eq!(if_match(" * "), Ok(None));
        for bad in [
            "\"17",
            "17\"",
            "",
            "W/\"17\"",
            "\"\"",
            "\"-1\"",
            "\"1\", \"2\"",
            "\"99999999999999999999\"",
            "\"",
            "\"x\"",
        ] {
            assert_eq!(if_match(bad).unwrap_err().code, Code::BadHeader, "{bad}");
        }
    }

    #[test]
    fn json_is_known_by_its_essence() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("text/json") && !is_json("application/jsonp") && !is_json(""));
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_a_problem(value in ".{0,64}") {
            let _ = if_match(&value);
            let _ = last_event_id(&value);
            let _ = is_json(&value);
        }
    }
}
