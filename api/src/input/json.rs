// SPDX-License-Identifier: Apache-2.0
//! Bytes to JSON, strictly: a key that stands twice in an object, or nesting that no document of ours has, is an error.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::wire::{Code, Problem};

/// Deepest nesting of a body; no type of ours has more than four.
pub const DEEPEST: usize = 32;

/// Reads one JSON value.
///
/// # Errors
/// `malformed_json`, with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let malformed = |error: &dyn fmt::Display| {
        Problem::new(Code::MalformedJson, "the body is not JSON that is accepted here")
            .because(error.to_string())
            .hint("send one JSON object, each key once")
    };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }.deserialize(&mut reader).map_err(|error| malformed(&error))?;
    reader.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

/// One value at a depth.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEEPEST {
            return Err(E::custom(format_args!("nests deeper than {DEEPEST} levels")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("key `{}` stands twice", shown.escape_debug())));
            }
            let value = entries.next_value_seed(inside)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cause(text: &str) -> String {
        let problem = parse(text.as_bytes()).unwrap_err();
        assert_eq!(problem.code, Code::MalformedJson);
        problem.cause.unwrap()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert!(cause("").contains("line 1 column 0"), "{}", cause(""));
        assert!(cause("{\"a\": 1,\n \"a\": 2}").contains("key `a` stands twice at line 2"));
        assert!(cause("{\"x\": {\"b\": 1, \"b\": 1}}").contains("key `b` stands twice"));
        assert!(cause("1 2").contains("trailing"));
        assert!(cause("1e999").contains("number out of range"));
        assert!(cause("NaN").contains("expected"));
        assert!(cause("{\"a\": \"\u{1}\"}").contains("control character"));
        assert!(parse(b"\xff\xfe").is_err());
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(nested(DEEPEST).as_bytes()).is_ok());
        assert!(cause(&nested(DEEPEST + 1)).contains("nests deeper than 32"));
        assert!(cause(&"[".repeat(1_000_000)).contains("nests deeper"));
        assert!(cause(&"{\"a\":".repeat(100_000)).contains("nests deeper"));
    }

    /// JSON values without any key twice.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 32, 4, |inside| {
            prop_oneof![
                prop::collection::vec(inside.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map(".*", inside, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_json_or_a_problem(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_json_is_read_as_it_was_written(value in values()) {
            prop_assert_eq!(parse(value.to_string().as_bytes()).unwrap(), value);
        }
    }
}
