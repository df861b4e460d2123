//! The shipped policy files, read when the crate was built: see `build/profiles.rs`. The model reads them as it reads a
//! file that was just parsed.

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};

/// A file of `profiles`.
pub(crate) struct File {
    pub name: &'static str,
    pub text: &'static str,
    pub root: Value,
}

/// A value, and the byte of the text where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    start: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text(&'static str),
    Number(i64),
    Bool(bool),
    List(&'static [Value]),
    Table(&'static [(&'static str, Value)]),
}

include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The files, in the order in which they are read.
pub(crate) fn files() -> &'static [File] {
    &FILES
}

impl File {
    /// The profile of a file that defines one and says nothing else.
    pub fn only_profile(&self) -> Option<&'static str> {
        match self.root.kind {
            // Sorted by their keys.
            Kind::Table([("profile", Value { kind: Kind::Table([(name, _)]), .. }), ("version", _)]) => {
                Some(name)
            }
            _ => None,
        }
    }
}

impl<'de> IntoDeserializer<'de> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.kind {
            Kind::Text(text) => visitor.visit_borrowed_str(text),
            Kind::Number(number) => visitor.visit_i64(number),
            Kind::Bool(truth) => visitor.visit_bool(truth),
            Kind::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().copied())),
            Kind::Table(entries) => visitor.visit_map(MapDeserializer::new(entries.iter().copied())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match is_spanned(name) {
            true => visitor.visit_map(SpannedDeserializer::new(self, self.start..self.start)),
            false => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.kind {
            Kind::Text(text) => visitor.visit_enum(text.into_deserializer()),
            other => Err(Error::custom(format_args!("expected a name, found {other:?}"))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}
