// SPDX-License-Identifier: Apache-2.0
//! Finds keys that no struct has, in whatever format a configuration is written.
//!
//! Pure. The known keys are asked of the structs themselves, through serde, so that a new field needs no second
//! list. The walk stops at the first unknown key, so that the error of the parser carries its position.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::nearest::nearest;
use super::{CpusConfig, MachineConfig, NodeConfig};

/// A key that does not exist, and what may have been meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// The key as written.
    pub key: String,
    /// The key whose table it stands in; none at the top.
    pub table: Option<&'static str>,
    /// The known key nearest to it, if one is near.
    pub nearest: Option<&'static str>,
    /// The keys that exist there.
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown key `{}`", self.key.escape_debug())?;
        self.table.into_iter().try_for_each(|table| write!(f, " in {table}"))?;
        self.nearest.into_iter().try_for_each(|nearest| write!(f, ", did you mean `{nearest}`?"))?;
        write!(f, "; known keys are {}", self.known.join(", "))
    }
}

/// The keys of a machine, at the top of a document.
#[must_use]
pub fn known_keys() -> &'static [&'static str] {
    field_names::<MachineConfig>()
}

/// The keys a document may have, and the first other one that was met.
pub(crate) struct KnownKeys {
    top: &'static [&'static str],
    /// Key of the top whose value has keys of its own, and these.
    inside: [(&'static str, &'static [&'static str]); 2],
    unknown: RefCell<Option<UnknownKey>>,
}

impl KnownKeys {
    pub(crate) fn of_machine() -> Self {
        Self {
            top: field_names::<MachineConfig>(),
            inside: [("cpus", field_names::<CpusConfig>()), ("numa", field_names::<NodeConfig>())],
            unknown: RefCell::new(None),
        }
    }

    /// Walks a document. An error is either the parser's own, or stands at the key [`KnownKeys::into_unknown`] gives.
    pub(crate) fn check<'de, D: Deserializer<'de>>(&self, document: D) -> Result<(), D::Error> {
        Walk { keys: self, table: None }.deserialize(document)
    }

    pub(crate) fn into_unknown(self) -> Option<UnknownKey> {
        self.unknown.into_inner()
    }

    fn known_in(&self, table: Option<&'static str>) -> Option<&'static [&'static str]> {
        match table {
            None => Some(self.top),
            Some(table) => self.inside.iter().find(|(key, _)| *key == table).map(|(_, keys)| *keys),
        }
    }
}

/// Walks one value: a table's keys, a list's items, or nothing at all.
#[derive(Clone, Copy)]
struct Walk<'a> {
    keys: &'a KnownKeys,
    table: Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        match self.keys.known_in(self.table) {
            Some(_) => value.deserialize_any(self),
            None => IgnoredAny::deserialize(value).map(drop),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a configuration")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Key(self))? {
            // Below the first level a key has no table of its own.
            let table = if self.table.is_none() { Some(key) } else { Some("") };
            map.next_value_seed(Walk { keys: self.keys, table })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<(), A::Error> {
        IgnoredAny.visit_enum(data).map(drop)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// One key of the table that is walked.
struct Key<'a>(Walk<'a>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<&'static str, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<&'static str, E> {
        let Walk { keys, table } = self.0;
        let known = keys.known_in(table).unwrap_or_default();
        known.iter().find(|name| **name == key).copied().ok_or_else(|| {
            let nearest = nearest(key, known.iter().copied());
            let unknown = UnknownKey { key: key.to_owned(), table, nearest, known };
            let error = E::custom(&unknown);
            keys.unknown.replace(Some(unknown));
            error
        })
    }
}

/// The names of the fields of `T`, as its derived `Deserialize` hands them to a deserializer.
fn field_names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let names = Cell::new(&[][..]);
    // The only purpose is the call that carries the names; it then fails, for there is no value.
    let _ = T::deserialize(FieldNames(&names));
    names.get()
}

struct FieldNames<'a>(&'a Cell<&'static [&'static str]>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.set(fields);
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
