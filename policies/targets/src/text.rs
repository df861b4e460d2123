//! Values that are written as text, each checked while it is read: so an error has the place of the text.

use serde::de::{Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Reads a value from its text.
///
/// # Errors
/// The input is no string, or not one that this type accepts.
pub fn read<'de, T, D>(input: D) -> Result<T, D::Error>
where
    T: TryFrom<String, Error: fmt::Display>,
    D: Deserializer<'de>,
{
    input.deserialize_str(TextVisitor(PhantomData))
}

/// Lets a type that is made from a text be read from a file. Not serde's `try_from`: its errors have no place in a list.
macro_rules! read_from_text {
    ($($name:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                $crate::text::read(input)
            }
        }
    )*};
}

pub(crate) use read_from_text;

struct TextVisitor<T>(PhantomData<T>);

impl<T: TryFrom<String, Error: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::try_from(text.to_owned()).map_err(E::custom)
    }
}
