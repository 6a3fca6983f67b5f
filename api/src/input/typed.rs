// SPDX-License-Identifier: Apache-2.0
//! JSON to one of the wire types, with what is wrong as fields and not as text: which key, and which ones there are.
//!
//! A key that may be left out may not be `null`: absent is the only way to say nothing. A number such as `3.0` is an integer,
//! as JSON Schema has it.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use super::nearest::nearest;
use crate::wire::{Code, Problem};

/// Reads a type.
///
/// # Errors
/// [`Mismatch`]: where, and what.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Mismatch> {
    T::deserialize(Node(value))
}

/// What does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Keys and places in lists, from the outside in.
    path: Vec<String>,
    wrong: Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    UnknownField { field: String, known: &'static [&'static str] },
    MissingField { field: &'static str },
    Value { message: String },
}

impl Mismatch {
    fn of(wrong: Wrong) -> Self {
        Self { path: Vec::new(), wrong }
    }

    fn below(mut self, step: impl Into<String>) -> Self {
        self.path.insert(0, step.into());
        self
    }

    fn place(&self, field: Option<&str>) -> String {
        let steps: Vec<&str> = self.path.iter().map(String::as_str).chain(field).collect();
        if steps.is_empty() { "the body".to_owned() } else { format!("`{}`", short(&steps.join("."))) }
    }
}

/// A client's own text, cut so that an answer stays small.
fn short(text: &str) -> String {
    text.chars().take(128).flat_map(char::escape_debug).collect()
}

impl From<Mismatch> for Problem {
    fn from(mismatch: Mismatch) -> Self {
        match &mismatch.wrong {
            Wrong::UnknownField { field, known } => {
                let meant = nearest(field, known).map(|name| format!("did you mean `{name}`? "));
                Self::new(Code::UnknownField, format!("there is no {}", mismatch.place(Some(field)))).hint(format!(
                    "{}known here: {}",
                    meant.unwrap_or_default(),
                    known.join(", ")
                ))
            }
            Wrong::MissingField { field } => {
                Self::new(Code::MissingField, format!("{} is missing", mismatch.place(Some(field))))
            }
            Wrong::Value { message } => {
                Self::new(Code::InvalidValue, format!("{}: {}", mismatch.place(None), short(message)))
            }
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Problem::from(self.clone()).message)
    }
}

impl std::error::Error for Mismatch {}

impl Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::of(Wrong::Value { message: message.to_string() })
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{unexpected} where {expected} belongs"))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{unexpected} is not {expected}"))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let meant = nearest(variant, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        Self::custom(format_args!("`{}` is none of {}{meant}", short(variant), known.join(", ")))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::of(Wrong::UnknownField { field: field.to_owned(), known })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of(Wrong::MissingField { field })
    }
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Value);

impl<'a> Node<'a> {
    fn unexpected(self) -> Unexpected<'a> {
        match self.0 {
            Value::Null => Unexpected::Other("null"),
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => Unexpected::Unsigned(value),
                (None, Some(value)) => Unexpected::Signed(value),
                (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }
}

/// The integer that a number such as `3.0` is.
fn whole(number: f64) -> Option<i64> {
    /// From here on not every integer is a number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is far from the ends of an i64")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0 {
            // No visitor of ours takes it, but for a value of any kind.
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => {
                let float = number.as_f64().unwrap_or_default();
                match (number.as_u64(), number.as_i64().or_else(|| whole(float))) {
                    (Some(value), _) => visitor.visit_u64(value),
                    (None, Some(value)) if value >= 0 => visitor.visit_u64(value.unsigned_abs()),
                    (None, Some(value)) => visitor.visit_i64(value),
                    (None, None) => visitor.visit_f64(float),
                }
            }
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter(), at: 0 }),
            Value::Object(map) => visitor.visit_map(Entries { entries: map.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(Variant(text)),
            _ => Err(Mismatch::invalid_type(self.unexpected(), &"a text")),
        }
    }

    // A list is no short way to write an object.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Mismatch::invalid_type(self.unexpected(), &"an object")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mismatch> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Node(item)).map(Some).map_err(|mismatch| mismatch.below(at.to_string()))
    }
}

struct Entries<'a> {
    entries: <&'a Map<String, Value> as IntoIterator>::IntoIter,
    value: Option<(&'a String, &'a Value)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mismatch> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let key: StrDeserializer<'_, Mismatch> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        let (key, value) = self.value.ok_or_else(|| Mismatch::custom("a value without a key"))?;
        seed.deserialize(Node(value)).map_err(|mismatch| mismatch.below(key.clone()))
    }
}

/// The name of a variant that holds nothing.
struct Variant<'a>(&'a str);

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Mismatch;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Mismatch> {
        let name: StrDeserializer<'_, Mismatch> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<(), Mismatch> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Mismatch> {
        Err(Mismatch::custom("an object belongs here"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Mismatch> {
        Err(Mismatch::custom("a list belongs here"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Mismatch> {
        Err(Mismatch::custom("an object belongs here"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::wire::{AffinityChange, PauseChange, PauseMode, PlacementChange, StateChange};

    fn problem<T: DeserializeOwned + fmt::Debug>(value: Value) -> (Code, String, String) {
        let problem = Problem::from(read::<T>(&value).unwrap_err());
        (problem.code, problem.message, problem.hint.unwrap_or_default())
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest() {
        let (code, message, hint) = problem::<PauseChange>(json!({"moed": "act"}));
        assert_eq!((code, message.as_str()), (Code::UnknownField, "there is no `moed`"));
        assert_eq!(hint, "did you mean `mode`? known here: mode, mechanism, parameters");
        let (_, message, hint) = problem::<PauseChange>(json!({"colour": 1}));
        assert_eq!(
            (message.as_str(), hint.as_str()),
            ("there is no `colour`", "known here: mode, mechanism, parameters")
        );
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_place() {
        let message = |value| problem::<PauseChange>(value).1;
        assert_eq!(
            message(json!({"mode": "atc"})),
            "`mode`: `atc` is none of off, kernel, observe, act; did you mean `act`?"
        );
        assert_eq!(message(json!({"mode": null})), "`mode`: null where a text belongs");
        assert_eq!(
            message(json!({"parameters": {"bail_after": -1}})),
            "`parameters.bail_after`: integer `-1` is not u64"
        );
        assert!(message(json!({"parameters": {"x": 1e30}})).starts_with("`parameters.x`: floating point"));
        assert_eq!(message(json!([])), "the body: sequence where an object belongs");
        assert_eq!(problem::<StateChange>(json!({})).1, "`state` is missing");
        assert!(problem::<AffinityChange>(json!({"affinity": "3-1"})).1.contains("runs backwards"));
        assert!(problem::<AffinityChange>(json!({"affinity": "99999999999999999999"})).1.contains("above 65535"));
    }

    #[test]
    fn what_fits_is_read() {
        let value = json!({"mode": "observe", "parameters": {"bail_after": 3.0}});
        let change: PauseChange = read(&value).unwrap();
        assert_eq!(change.mode, Some(PauseMode::Observe));
        assert_eq!(change.parameters.unwrap()["bail_after"], 3);
    }

    proptest! {
        #[test]
        fn a_change_is_read_as_it_was_written(
            mode in prop::option::of(prop::sample::select(vec![PauseMode::Off, PauseMode::Act])),
            mechanism in prop::option::of(".*"),
            parameters in prop::option::of(prop::collection::btree_map("[a-z_]*", any::<u64>(), 0..4)),
        ) {
            let change = PauseChange { mode, mechanism, parameters };
            prop_assert_eq!(read::<PauseChange>(&serde_json::to_value(&change).unwrap()).unwrap(), change);
        }

        #[test]
        fn any_json_is_a_change_or_a_problem(bytes in "[\\{\\}\\[\\]\":,a-z0-9_. -]{0,64}") {
            let _ = super::super::body::<PauseChange>(bytes.as_bytes());
            let _ = super::super::body::<PlacementChange>(bytes.as_bytes());
            let _ = super::super::body::<AffinityChange>(bytes.as_bytes());
            let _ = super::super::body::<StateChange>(bytes.as_bytes());
        }
    }
}
