// SPDX-License-Identifier: Apache-2.0
//! The query of a request: parameters by name, each known and given once.

use std::collections::BTreeMap;

use super::nearest::nearest;
use crate::wire::{Code, Problem};

/// Names under which tokens are sent elsewhere. Refused whatever the route, so that none ends up in a log.
const TOKEN_NAMES: [&str; 5] = ["token", "access_token", "api_token", "auth", "authorization"];

/// The parameters of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query in which only the `known` names may stand.
    ///
    /// # Errors
    /// `bad_query` for an unknown name, one that stands twice, and what is no percent-encoded UTF-8; `token_in_query`.
    pub fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for item in query.unwrap_or_default().split('&').filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if TOKEN_NAMES.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(Problem::new(Code::TokenInQuery, "a token in the query is refused")
                    .because("queries are kept in logs and histories")
                    .hint("send it as `Authorization: Bearer TOKEN`, and replace the one that was sent"));
            }
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            if parameters.insert(name.clone(), value).is_some() {
                return Err(Problem::new(Code::BadQuery, format!("parameter `{name}` stands twice")));
            }
        }
        Ok(Self(parameters))
    }

    /// A number from `least` to `most`, or `default` if it is not given.
    ///
    /// # Errors
    /// `bad_query`.
    pub fn number(&self, name: &str, default: u64, least: u64, most: u64) -> Result<u64, Problem> {
        let Some(text) = self.0.get(name) else { return Ok(default) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| bad_value(name, text, &format!("a number from {least} to {most}")))
    }

    /// `true` or `false`, or `default` if it is not given.
    ///
    /// # Errors
    /// `bad_query`.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Problem> {
        match self.0.get(name).map(String::as_str) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(text) => Err(bad_value(name, text, "true or false")),
        }
    }

    /// Whether a parameter is given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn bad_value(name: &str, text: &str, wanted: &str) -> Problem {
    Problem::new(Code::BadQuery, format!("parameter `{name}`: `{}` is not {wanted}", short(text)))
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let problem = Problem::new(Code::BadQuery, format!("there is no parameter `{}`", short(name)));
    if known.is_empty() {
        return problem.hint("this path takes no query");
    }
    let meant = nearest(name, known).map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    problem.hint(format!("{meant}known here: {}", known.join(", ")))
}

fn decode(text: &str) -> Result<String, Problem> {
    let bad = || Problem::new(Code::BadQuery, format!("`{}` is not percent-encoded UTF-8", short(text)));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| bad())?);
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(query: &str) -> Code {
        Query::parse(Some(query), &["limit", "from"]).unwrap_err().code
    }

    #[test]
    fn only_known_names_stand_once() {
        let query = Query::parse(Some("limit=12&from=%31"), &["limit", "from"]).unwrap();
        assert_eq!(query.number("limit", 5, 0, 100), Ok(12));
        assert_eq!(query.number("from", 5, 0, 100), Ok(1));
        assert_eq!(query.number("absent", 5, 0, 100), Ok(5));
        assert_eq!(code("limit=1&limit=2"), Code::BadQuery);
        assert_eq!(code("limit=%zz"), Code::BadQuery);
        assert_eq!(code("limit=%ff"), Code::BadQuery);
        let hint = Query::parse(Some("limt=1"), &["limit"]).unwrap_err().hint.unwrap();
        assert_eq!(hint, "did you mean `limit`? known here: limit");
        assert!(Query::parse(None, &[]).is_ok() && Query::parse(Some("&&"), &[]).is_ok());
    }

    #[test]
    fn numbers_are_digits_in_their_range() {
        for text in ["", "-1", "+1", "1.0", "0x1", "101", "99999999999999999999999", " 1"] {
            let query = Query(BTreeMap::from([("limit".to_owned(), text.to_owned())]));
            assert_eq!(query.number("limit", 5, 1, 100).unwrap_err().code, Code::BadQuery, "{text}");
        }
    }

    #[test]
    fn a_token_is_refused_under_every_name() {
        assert_eq!(code("limit=1&token=x"), Code::TokenInQuery);
        assert_eq!(code("ACCESS_TOKEN=x"), Code::TokenInQuery);
        assert_eq!(code("%74oken=x"), Code::TokenInQuery);
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_a_problem(query in ".{0,64}") {
            let _ = Query::parse(Some(&query), &["limit"]);
        }
    }
}
